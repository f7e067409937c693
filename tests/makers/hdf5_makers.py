"""Makes HDF5 files that are meant to hurt. Each docstring is a promise.

A maker takes a good file of events (SPANet's layout) that it changes, and a file that its reader must not see.
"""

import h5py
import numpy as np

PT = "INPUTS/Source/pt"


def external_link(path, secret):
    """A dataset that is a link to another file is refused."""
    with h5py.File(path, "r+") as file:
        del file[PT]
        file[PT] = h5py.ExternalLink(str(secret), PT)


def external_group(path, secret):
    """A group on the way to a dataset that is a link to another file is refused."""
    with h5py.File(path, "r+") as file:
        del file["INPUTS"]
        file["INPUTS"] = h5py.ExternalLink(str(secret), "INPUTS")


def soft_to_external(path, secret):
    """A soft link that leads to an external link is refused."""
    with h5py.File(path, "r+") as file:
        del file[PT]
        file["elsewhere"] = h5py.ExternalLink(str(secret), "/")
        file["INPUTS/Source/here"] = h5py.SoftLink("/elsewhere/INPUTS")
        file[PT] = h5py.SoftLink("here/Source/pt")


def external_storage(path, secret):
    """A dataset whose values lie in another file is refused."""
    with h5py.File(path, "r+") as file:
        shape = file[PT].shape
        del file[PT]
        name = str(secret).encode()
        file.create_dataset(PT, shape, "f4", external=[(name, 0, 4 * int(np.prod(shape)))])


def virtual_dataset(path, secret):
    """A dataset put together from another file is refused."""
    with h5py.File(path, "r+") as file:
        layout = h5py.VirtualLayout(file[PT].shape, "f4")
        layout[:] = h5py.VirtualSource(str(secret), PT, file[PT].shape)
        del file[PT]
        file.create_virtual_dataset(PT, layout)


def soft_circle(path, secret):
    """Soft links that lead to one another are a dataset that is not there."""
    with h5py.File(path, "r+") as file:
        del file[PT]
        file[PT] = h5py.SoftLink("eta2")
        file["INPUTS/Source/eta2"] = h5py.SoftLink("pt")


def many_rows(path, secret):
    """A file of a few kB that declares two thousand million rows is refused."""
    with h5py.File(path, "r+") as file:
        names = [f"INPUTS/Source/{name}" for name in file["INPUTS/Source"]]
        for name in names:
            kind = file[name].dtype
            del file[name]
            file.create_dataset(name, (2_000_000_000, 8), kind, chunks=(1000, 8), compression="gzip")
        del file["TARGETS"], file["METADATA"], file.attrs["pairton"]


def wide_rows(path, secret):
    """A file of a few kB whose rows are two thousand million values wide is refused."""
    with h5py.File(path, "r+") as file:
        rows = file[PT].shape[0]
        for name in list(file["INPUTS/Source"]):
            kind = file[f"INPUTS/Source/{name}"].dtype
            del file[f"INPUTS/Source/{name}"]
            file.create_dataset(f"INPUTS/Source/{name}", (rows, 2_000_000_000), kind, chunks=(1, 100_000))


def huge_chunk(path, secret):
    """A file whose chunk, once inflated, fills the memory is refused."""
    with h5py.File(path, "r+") as file:
        shape = file[PT].shape
        del file[PT]
        file.create_dataset(
            PT, shape, "f4", chunks=(500_000_000, 1), maxshape=(None, shape[1]), compression="gzip"
        )


def inflating(path, secret):
    """A file of a few kB with gigabytes of one value is an answer or one line, within 30 s and 2 GiB."""
    with h5py.File(path, "r+") as file:
        for name in list(file["INPUTS/Source"]):
            kind = file[f"INPUTS/Source/{name}"].dtype
            del file[f"INPUTS/Source/{name}"]
            shape, chunks = (120_000, 160), (1000, 160)
            file.create_dataset(f"INPUTS/Source/{name}", shape, kind, chunks=chunks, fillvalue=1)
        del file["TARGETS"], file["METADATA"], file.attrs["pairton"]


LEAKS = (external_link, external_group, soft_to_external, external_storage, virtual_dataset)
BOMBS = (soft_circle, many_rows, wide_rows, huge_chunk)
