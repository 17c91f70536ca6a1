"""Where an agent finds its own control groups, on the systems there are."""

from __future__ import annotations

import pytest

from adk_skills_agent.platforms import own_groups
from adk_skills_agent.sandbox.local.cgroup import Hierarchy

HYBRID_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
HYBRID_GROUPS = """\
9:name=systemd:/
8:pids:/
4:memory:/services/agent
2:cpu,cpuacct:/
0::/init.scope
"""


def test_a_hybrid_system_has_a_folder_for_each_controller_and_one_without():
    assert own_groups(HYBRID_GROUPS, HYBRID_MOUNTS) == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory/services/agent",
        "pids": "/sys/fs/cgroup/pids",
        "name=systemd": "/sys/fs/cgroup/systemd",
        "": "/sys/fs/cgroup/unified/init.scope",
    }


def test_a_unified_system_has_one():
    groups = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"
    mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    assert own_groups(groups, mounts) == {
        "": "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
    }


def test_in_a_container_without_a_group_namespace_the_mount_begins_at_its_group():
    mounts = "712 711 0:32 /docker/4f2a /sys/fs/cgroup/memory ro,nosuid master:16 - cgroup cgroup rw,memory\n"
    assert own_groups("4:memory:/docker/4f2a\n", mounts) == {"memory": "/sys/fs/cgroup/memory"}
    assert own_groups("4:memory:/docker/4f2a/below\n", mounts) == {"memory": "/sys/fs/cgroup/memory/below"}


def test_in_a_container_with_a_group_namespace_its_group_is_the_root():
    mounts = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
    assert own_groups("0::/\n", mounts) == {"": "/sys/fs/cgroup"}


@pytest.mark.parametrize(
    ("path", "root"),
    [("/docker/other", "/docker/4f2a"), ("/../other", "/"), ("/", "/.."), ("/docker/4f2ab", "/docker/4f2a")],
)
def test_a_group_outside_of_what_is_mounted_is_not_found(path, root):
    mounts = f"712 711 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert own_groups(f"4:memory:{path}\n", mounts) == {}


def test_of_several_mounts_the_first_that_shows_the_group_counts_and_spaces_are_read():
    mounts = (
        "1 1 0:32 /elsewhere /wrong rw - cgroup cgroup rw,memory\n"
        "2 1 0:32 / /with\\040space rw - cgroup cgroup rw,memory\n"
        "3 1 0:32 / /later rw - cgroup cgroup rw,memory\n"
    )
    assert own_groups("4:memory:/a\n", mounts) == {"memory": "/with space/a"}


def test_controllers_that_are_mounted_together_are_one_folder():
    assert Hierarchy(1, "/m", "/p", "/m").folders == ("/m", "/p")
    assert Hierarchy(2, "/g", "/g", "/g").folders == ("/g",)
    assert Hierarchy(1, "/m", "/p", None).folders == ("/m", "/p")
