"""Without inotify, and without permission: in child processes, because this process keeps its limits and its user."""

import os

import pytest


@pytest.mark.parametrize(
    ("what", "name"), [("instances", "fs.inotify.max_user_instances"), ("watches", "max_user_watches")]
)
def test_lists_without_inotify(child, dev, what, name):
    """The limits are those of a user namespace (namespaces(7), /proc/sys/user), so no other process has them."""
    dev.node("tty0", 0)
    script = f"""
        limit("{what}", 0)
        driver = drive("/dev/ttyUSB*")
        assert listed(driver) == listed(driver) == {{}}
        (dev / "ttyUSB0").symlink_to("tty0")
        assert listed(driver) == {{"ttyUSB0": None}}
        assert recorder.changes == 0
        assert len(recorder.messages) == 1, recorder.messages
        assert "changes are noticed only at the next refresh" in recorder.messages[0], recorder.messages
        assert "fs.inotify.max_user_{what} is reached" in recorder.messages[0], recorder.messages
        limit("{what}", 100)
        assert listed(driver) == {{"ttyUSB0": None}}
        recorder.changed.clear()
        (dev / "ttyUSB0").unlink()
        assert recorder.changed.wait(20)
        assert listed(driver) == {{}}
        driver.close()
    """
    child(script, "unshare", "--user", "--map-root-user")


def test_logs_missing_uevents_once(child):
    """In a user namespace, as in a pod with hostUsers: false."""
    script = """
        match = {"subsystem": "mem", "kernel": "null"}
        driver = CharDevices(from_plain({"match": match}, CharDevices.Options), recorder.context())
        assert listed(driver) == listed(driver) == {"null": None}
        assert len(recorder.messages) == 1, recorder.messages
        assert "changes in /sys are noticed only at the next refresh" in recorder.messages[0], recorder.messages
        assert "no uevents to a user namespace" in recorder.messages[0], recorder.messages
        driver.close()
    """
    child(script, "unshare", "--user", "--map-root-user")


def test_reports_unreadable_directories(child, dev):
    script = """
        os.chdir(dev)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        dev = Path("/proc/self/cwd")  # what lies above may be closed to this user
        expected = "can't look at /dev/{}: Permission denied"
        driver = drive("/dev/closed/tty0", "/dev/ttyUSB*", "/dev/closed/*")
        assert listed(driver) == {name: expected.format(name) for name in ("closed/tty0", "ttyUSB0")}
        assert any("can't watch" in message and "Permission denied" in message for message in recorder.messages)
        recorder.changed.clear()
        (dev / "closed").chmod(0o755)
        assert recorder.changed.wait(20)
        assert listed(driver) == {"closed/tty0": None}  # and the link is another name of it
        driver.close()
    """
    dev.node("closed/tty0", 0)
    dev.link("ttyUSB0", "closed/tty0")
    (dev.path / "closed").chmod(0o000)
    os.chown(dev.path / "closed", 65534, 65534)
    child(script)
