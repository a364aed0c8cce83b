"""Check of METIS, which does not report its version."""

import ctypes


def check_partitions_a_graph() -> None:
    """Two triangles that one edge joins are cut at that edge."""
    metis = ctypes.CDLL("libmetis.so")
    neighbours = [[1, 2], [0, 2], [0, 1, 3], [2, 4, 5], [3, 5], [3, 4]]
    starts, flat = [0], []
    for row in neighbours:
        flat += row
        starts.append(len(flat))
    parts = (ctypes.c_int32 * 6)()
    cut = ctypes.c_int32()
    code = metis.METIS_PartGraphKway(
        ctypes.byref(ctypes.c_int32(6)),
        ctypes.byref(ctypes.c_int32(1)),
        (ctypes.c_int32 * 7)(*starts),
        (ctypes.c_int32 * len(flat))(*flat),
        None,
        None,
        None,
        ctypes.byref(ctypes.c_int32(2)),
        None,
        None,
        None,
        ctypes.byref(cut),
        parts,
    )
    assert code == 1, f"METIS_PartGraphKway returned {code}"
    assert cut.value == 1, list(parts)
