"""Archives that are the same bytes wherever they are built: setuptools settles only the times inside a wheel."""

import gzip
import os
import tarfile
import time
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist


def plain_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """``member`` without its builder's name, permissions and clock."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    member.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return member


class PlainSdist(sdist):
    """A source archive of `plain_member` files."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        """Write ``base_name.tar.gz``; returns its name."""
        if format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)
        name = f"{base_name}.tar.gz"
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        # Without a file name of its own, or the archive would hold where it was built.
        with (
            open(name, "wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=plain_member)
        return name


class PlainWheel(bdist_wheel):
    """A wheel whose files have the permissions of a usual umask."""

    def write_wheelfile(self, *arguments, **options):
        """Write the last file of the wheel's folder, then settle the permissions of all of them."""
        super().write_wheelfile(*arguments, **options)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


setup(cmdclass={"sdist": PlainSdist, "bdist_wheel": PlainWheel})
