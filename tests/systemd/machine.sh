# A machine that systemd runs, in namespaces of its own: bash machine.sh FOLDER PATH... It ends with its standard input.
# FOLDER has units/ and kubelet/, which is /var/lib/kubelet. The host's PATHs are there, too. All else that is written goes
# to memory. Of the host's units there is none, because some of them would empty /tmp and set the kernel's parameters.
set -euo pipefail
folder=$1
mount --make-rprivate /
mkdir "$folder/cgroup"
mount -t cgroup2 cgroup2 "$folder/cgroup"
own=$folder/cgroup/dpgateway-systemd-$$
mkdir "$own"

unshare --kill-child --fork --pid --mount --ipc --uts bash -euo pipefail -s "$own" "$@" <<'SYSTEMD' &
echo 0 >"$1/cgroup.procs"
folder=$2
shift 2
mkdir "$folder/memory"
mount -t tmpfs tmpfs "$folder/memory"
cd "$folder/memory"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work" root
cd root
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mount --rbind /dev dev
for memory in run tmp usr/lib/systemd/system etc/systemd; do mount -t tmpfs tmpfs "$memory"; done
for path; do
    mkdir -p ".$path"
    mount --bind "$path" ".$path"
done
mkdir -p etc/systemd/system var/lib/kubelet
mount --bind "$folder/kubelet" var/lib/kubelet
for target in basic final local-fs multi-user shutdown sysinit umount; do
    printf '[Unit]\nDefaultDependencies=no\n' >"usr/lib/systemd/system/$target.target"
done
cp -r "$folder/units/." etc/systemd/system
touch "$folder/log"
mount --bind "$folder/log" dev/console
mkdir host
pivot_root . host
cd /
umount -l host
exec unshare --cgroup sh -c '
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    container=docker exec /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no'
SYSTEMD
machine=$!
cat >/dev/null
kill -KILL "$(<"/proc/$machine/task/$machine/children")"
wait "$machine" || true
until find "$own" -depth -type d -exec rmdir {} + 2>/dev/null; do sleep 0.01; done
