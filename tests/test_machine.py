"""What a machine says of itself, read from the files of its operating system."""

from pathlib import Path

from placer.profiler.timing.machine import NumaNode, numa_nodes


def test_memory_nodes_are_read_with_their_cores_and_memory(tmp_path: Path) -> None:
    for node, cores, kibibytes in ((0, "0-15,32-47", 263_000_000), (10, "16-31,48-63", 264_000_000)):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        (folder / "cpulist").write_text(cores + "\n")
        (folder / "meminfo").write_text(
            f"Node {node} MemTotal:       {kibibytes} kB\nNode {node} MemFree: 1 kB\n"
        )
    (tmp_path / "node2").mkdir()  # A node whose files cannot be read is left out.
    assert numa_nodes(tmp_path) == (
        NumaNode(0, "0-15,32-47", 263_000_000 * 1024),
        NumaNode(10, "16-31,48-63", 264_000_000 * 1024),
    )
    assert numa_nodes(tmp_path / "none") == ()
