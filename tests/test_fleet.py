"""Files from many servers become one trace, shard by shard, wherever they are read."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import SHARED_DATA, needs_shared_data
from small_traces import token_traces

from placer.errors import BadInputError, MissingComponentError
from placer.profiler.trace.dask_cluster import cluster_map
from placer.profiler.trace.domains import COUNTS_LOSE_DOMAINS
from placer.profiler.trace.file import read_trace, write_trace
from placer.profiler.trace.fleet import Imported, ImportRequest, import_files
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.selection import selection_counts
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace

TOP_1 = KnownModel(top_k=1)


def csv(path: Path, *counts: int) -> Path:
    """Counts of one layer's experts."""
    rows = "".join(f"0,{expert},{count}\n" for expert, count in enumerate(counts))
    path.write_text("layer,expert,count\n" + rows)
    return path


def counted(out: Path, sources: list[Path], **request: Any) -> tuple[Imported, CountTrace]:
    imported = import_files(sources, out, ImportRequest(**({"model": TOP_1} | request)))
    trace = read_trace(out)
    assert isinstance(trace, CountTrace)
    assert trace.header == imported.header
    return imported, trace


def test_shards_of_a_folder_are_windows(tmp_path: Path) -> None:
    folder = tmp_path / "day"
    folder.mkdir()
    csv(folder / "b", 1, 2)
    csv(folder / "a", 3, 0)
    (folder / ".hidden").write_text("x")
    imported, trace = counted(tmp_path / "out", [folder])
    assert trace.counts[:, 0].tolist() == [[3, 0], [1, 2]]  # by name
    assert trace.window_tokens.tolist() == [3, 3]
    assert (imported.shards, imported.tokens, imported.kind) == (2, 6, "counts")
    assert any("1 hidden files" in note for note in imported.header.notes)


def test_more_shards_than_windows_are_added_up(tmp_path: Path) -> None:
    shards = [csv(tmp_path / str(number), number + 1, 1) for number in range(5)]
    _, trace = counted(tmp_path / "out", shards, windows=2)
    # Shards 0, 2 and 4 hold 1, 3 and 5 selections of expert 0; shards 1 and 3 hold 2 and 4.
    assert trace.counts[:, 0].tolist() == [[9, 3], [6, 2]]
    assert trace.window_tokens.tolist() == [12, 8]


def test_counts_name_the_domains_of_all_shards_and_say_that_windows_do_not(tmp_path: Path) -> None:
    for name in ("law", "code"):
        (tmp_path / name).write_text(f"layer,expert,count,domain\n0,{len(name) % 2},3,{name}\n")
    header = counted(tmp_path / "out", [tmp_path / "law", tmp_path / "code"])[1].header
    assert header.domains == ("code", "law")
    assert header.notes.count(COUNTS_LOSE_DOMAINS) == 1
    one = counted(tmp_path / "one", [tmp_path / "law"])[1].header
    assert one.domains == ("law",)
    assert COUNTS_LOSE_DOMAINS not in one.notes
    np.savez(tmp_path / "t.npz", topk=[[[0]], [[1]]], offsets=[0, 1, 2], domain=["law", "code"])
    reduced = counted(tmp_path / "t", [tmp_path / "t.npz"], keep="counts")[1].header
    assert reduced.domains == ("code", "law")
    assert reduced.notes.count(COUNTS_LOSE_DOMAINS) == 1


def test_the_same_content_counts_once(tmp_path: Path) -> None:
    imported, trace = counted(
        tmp_path / "out", [csv(tmp_path / "a", 1, 2), csv(tmp_path / "b", 1, 2), csv(tmp_path / "c", 2, 1)]
    )
    assert (imported.shards, trace.tokens) == (2, 6)
    assert any("b repeats" in note and "tensor-parallel" in note for note in imported.header.notes)


def test_a_broken_shard_stops_or_is_named(tmp_path: Path) -> None:
    shards = [csv(tmp_path / "a", 1, 2), csv(tmp_path / "b", 2, 1)]
    (tmp_path / "broken").write_text("layer,expert,count\n0,0,x\n")
    sources = [shards[0], tmp_path / "broken", shards[1]]
    with pytest.raises(BadInputError, match=r"broken.*count is not a whole number") as caught:
        counted(tmp_path / "out", sources)
    assert "--broken skip" in caught.value.hint
    assert not (tmp_path / "out").exists()
    imported, trace = counted(tmp_path / "out", sources, broken="skip")
    assert trace.tokens == 6
    assert len(imported.skipped) == 1
    assert any(
        "skipped 1 shard that could not be used" in note and "broken" in note
        for note in imported.header.notes
    )


def test_the_first_usable_shard_says_what_the_others_must_fit(tmp_path: Path) -> None:
    sources = [csv(tmp_path / "a", 1, 2), csv(tmp_path / "b", 1, 1, 1)]
    with pytest.raises(BadInputError, match="expert 2, the model has 2"):
        counted(tmp_path / "out", sources)
    (tmp_path / "0").write_text("?")
    _, trace = counted(tmp_path / "out", [tmp_path / "0", *sources], broken="skip")
    assert trace.tokens == 3
    with pytest.raises(BadInputError, match="none of 2 shards can be used"):
        counted(tmp_path / "out", [tmp_path / "0", tmp_path / "0", csv(tmp_path / "c", 0)], broken="skip")


def test_one_file_stays_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", counts=np.ones((9, 1, 2), dtype=int), top_k=1)
    imported, trace = counted(tmp_path / "out", [tmp_path / "c.npz"], windows=2, keep="counts")
    assert (imported.requests, len(trace.counts)) == (9, 9)


@pytest.mark.parametrize(
    ("request_", "says"),
    [({"keep": "some"}, "--keep"), ({"broken": "x"}, "--broken"), ({"windows": 0}, "--windows")],
)
def test_unknown_choices_are_refused(request_: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        import_files([csv(tmp_path / "a", 1)], tmp_path / "out", ImportRequest(TOP_1, **request_))


def test_missing_and_empty_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file or folder"):
        import_files([tmp_path / "none"], tmp_path / "out", ImportRequest())
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no file to import"):
        import_files([tmp_path / "empty"], tmp_path / "out", ImportRequest())
    with pytest.raises(BadInputError, match="input of this command"):
        import_files([csv(tmp_path / "a", 1)], tmp_path / "a", ImportRequest(TOP_1))


def test_progress_ends_with_every_shard(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    import_files(
        [csv(tmp_path / str(number), number, 1) for number in range(4)],
        tmp_path / "out",
        ImportRequest(TOP_1),
        lambda text, share: seen.append((text, share)),
    )
    assert [text for text, _ in seen] == ["shard 2 of 4", "shard 3 of 4", "shard 4 of 4"]
    assert [share for _, share in seen] == sorted(share for _, share in seen)
    assert 0 < seen[0][1] < seen[-1][1] <= 1


@settings(max_examples=25, deadline=None)
@given(traces=st.lists(token_traces(padding=True), min_size=2, max_size=4), windows=st.integers(1, 5))
def test_joined_tokens_and_summed_counts_are_those_of_the_shards(
    traces: list[TokenTrace], windows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fleet")
    first = traces[0].header
    alike: list[TokenTrace] = []
    for trace in traces:
        header = trace.header
        same = (header.layers, header.experts, header.top_k) == (first.layers, first.experts, first.top_k)
        if same and not any(np.array_equal(trace.topk_ids, one.topk_ids) for one in alike):
            alike.append(trace)
    sources = [folder / str(number) for number in range(len(alike))]
    for trace, path in zip(alike, sources, strict=True):
        write_trace(trace, path)
    expected = sum(selection_counts(trace) for trace in alike)

    import_files(sources, folder / "tokens", ImportRequest())
    joined = read_trace(folder / "tokens")
    assert isinstance(joined, TokenTrace)
    np.testing.assert_array_equal(selection_counts(joined), expected)
    np.testing.assert_array_equal(joined.topk_ids, np.concatenate([trace.topk_ids for trace in alike]))
    requests = [np.unique(trace.request).size for trace in alike]
    assert int(joined.request[-1]) + 1 == sum(requests)
    names = [np.array([*joined.header.domains])[joined.domain]] if joined.domain is not None else []
    mine = [np.array([*trace.header.domains])[trace.domain] for trace in alike if trace.domain is not None]
    assert np.concatenate(names).tolist() == np.concatenate(mine).tolist()

    import_files(sources, folder / "counts", ImportRequest(keep="counts", windows=windows))
    summed = read_trace(folder / "counts")
    assert isinstance(summed, CountTrace)
    np.testing.assert_array_equal(selection_counts(summed), expected)
    assert summed.tokens == joined.tokens
    assert len(summed.counts) <= windows


def _recorded(path: Path, tokens: list[int], **ids: Any) -> Path:
    """A per_token dump of one prompt on one dense and one MoE layer, a token's expert its input id."""
    count = len(tokens)
    layer = torch.tensor([[token] + [-1] * 7 for token in tokens])
    record = {
        "gatherer_key": "primary",
        "input_ids": tokens,
        "positions": list(range(count)),
        "extend_seq_lens": [count],
        "forward_mode": 1,
        "topk_ids_of_layer": torch.stack([torch.full((count, 8), -1), layer]).to(torch.int32),
        "global_physical_count": torch.zeros((2, 4), dtype=torch.int32),
        **ids,
    }
    logical = torch.arange(4).repeat(2, 1)
    torch.save({"records": [record], "last_physical_to_logical_map": logical}, path)
    return path


def test_ranks_with_the_same_tokens_count_once_and_with_others_add_up(tmp_path: Path) -> None:
    tensor_parallel = [_recorded(tmp_path / f"{rank}.pt", [0, 1, 2], rank=rank) for rank in range(2)]
    imported = import_files(tensor_parallel, tmp_path / "out", ImportRequest())
    assert (imported.tokens, imported.requests, imported.shards) == (3, 1, 1)
    data_parallel = [*tensor_parallel, _recorded(tmp_path / "2.pt", [3, 1], rank=2)]
    imported = import_files(data_parallel, tmp_path / "out", ImportRequest())
    assert (imported.tokens, imported.requests, imported.shards) == (5, 2, 2)


def test_counts_and_tokens_do_not_mix_silently(tmp_path: Path) -> None:
    torch.save({"logical_count": torch.ones((1, 2, 4), dtype=torch.int32)}, tmp_path / "b.pt")
    sources = [_recorded(tmp_path / "a.pt", [0, 1, 2, 3]), tmp_path / "b.pt"]
    with pytest.raises(BadInputError, match=r"b.pt.*(holds counts|has no experts)"):
        import_files(sources, tmp_path / "out", ImportRequest())
    with pytest.raises(BadInputError, match=r"it holds counts, not tokens"):
        import_files([csv(tmp_path / "c", 1)], tmp_path / "out", ImportRequest(TOP_1, keep="tokens"))


def test_one_phase_of_every_shard_can_be_kept(tmp_path: Path) -> None:
    sources = [_recorded(tmp_path / "a.pt", [0, 1]), _recorded(tmp_path / "b.pt", [2, 3], forward_mode=2)]
    with pytest.raises(BadInputError, match=r"b.pt: it holds no prefill tokens"):
        import_files(sources, tmp_path / "out", ImportRequest(phase=Phase.PREFILL))
    imported = import_files(sources, tmp_path / "out", ImportRequest(phase=Phase.PREFILL, broken="skip"))
    assert imported.tokens == 2


@needs_shared_data
def test_the_recorders_fixtures_are_shards_too(tmp_path: Path) -> None:
    fixtures = SHARED_DATA / "runtime_fixtures"
    model = KnownModel("M", (1, 2, 3, 4, 5), 6, 16, 4)
    sources = [
        fixtures / f"sglangkt072_{mode}__expert_distribution_recorder.pt"
        for mode in ("per_token", "stat_inf", "stat_circ16", "per_pass")
    ]
    imported = import_files(sources, tmp_path / "out", ImportRequest(model, keep="counts", windows=8))
    trace = read_trace(tmp_path / "out")
    # All modes recorded the same run; the two stat dumps are the same passes, and so is per_pass.
    assert imported.shards == 2
    assert selection_counts(trace).sum() == 2 * 620


def test_memory_does_not_grow_with_the_number_of_shards(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(60):
        np.savez(
            tmp_path / f"{number:03}.npz",
            topk=np.argsort(random.random((4000, 8, 16)), axis=2)[:, :, :4].astype(np.uint8),
        )
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from placer.profiler.trace.fleet import ImportRequest, import_files
        from placer.profiler.trace.known_model import KnownModel
        model = KnownModel("M", tuple(range(8)), 8, 16, 4)
        shards = sorted(Path(sys.argv[1]).glob("*.npz"))[: int(sys.argv[2])]
        import_files(shards, Path(sys.argv[1]) / "out", ImportRequest(model, keep=sys.argv[3]))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        """
    )

    def peak_mib(shards: int, keep: str) -> int:
        command = [sys.executable, "-c", script, str(tmp_path), str(shards), keep]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    for keep in ("tokens", "counts"):
        # The other 54 shards hold 14 MiB of ids.
        assert peak_mib(60, keep) - peak_mib(6, keep) < 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a Dask cluster of two worker processes."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with closing(
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        )
    ) as local:
        yield local.scheduler_address


def test_a_cluster_gives_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    shards = [csv(tmp_path / f"{number:02}", number % 7, number, 1) for number in range(25)]
    shards.append(csv(tmp_path / "99", 3, 3, 1))  # repeats shard 03
    (tmp_path / "broken").write_text("layer,expert,count\n0,0,x\n")
    shards.insert(5, tmp_path / "broken")
    for out, dask in (("local", None), ("cluster", cluster)):
        counted(tmp_path / out, shards, windows=4, broken="skip", dask=dask)
    assert (tmp_path / "local").read_bytes() == (tmp_path / "cluster").read_bytes()

    dumps = [_recorded(tmp_path / f"{number}.pt", [number, 1, 2]) for number in (0, 3)]
    for out, dask in (("local", None), ("cluster", cluster)):
        import_files(dumps, tmp_path / out, ImportRequest(dask=dask))
    assert (tmp_path / "local").read_bytes() == (tmp_path / "cluster").read_bytes()


def test_a_broken_shard_on_a_cluster_is_named(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("layer,expert,count\n0,0,x\n")
    with pytest.raises(BadInputError, match=r"broken.*count is not a whole number"):
        counted(tmp_path / "out", [csv(tmp_path / "a", 1, 2), tmp_path / "broken"], dask=cluster)


def _fails(number: int) -> int:
    if number == 2:
        raise ZeroDivisionError("by two")
    return number


def test_results_of_a_cluster_come_in_order_until_a_worker_fails(cluster: str) -> None:
    results = cluster_map(cluster, _fails, [(0,), (1,), (2,)])
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(BadInputError, match=r"a worker failed \(by two\)"):
        next(results)


def test_a_cluster_that_is_not_there_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr("placer.profiler.trace.dask_cluster._CONNECT_SECONDS", 1)
    sources = [csv(tmp_path / "a", 1, 2), csv(tmp_path / "b", 2, 1)]
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(BadInputError, match=r"no Dask scheduler answers|is not an address"):
            counted(tmp_path / "out", sources, dask=address)


def test_without_dask_it_is_a_missing_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingComponentError, match=r"dask\.distributed"):
        counted(tmp_path / "out", [csv(tmp_path / "a", 1, 2), csv(tmp_path / "b", 2, 1)], dask="tcp://x:1")
