# Run smoke checks in an image's root file system on this machine: as root, or in an ordinary user's namespaces.
#
# Bakehouse puts the variables and the functions `in_environment` and `write_checks` before this text. The script
# needs util-linux, coreutils, tar and gzip, and for GPUs their driver; no container engine and no network.
set -eu
# An ordinary user's PATH may lack the directories of chroot and ldconfig.
PATH=$PATH:/usr/sbin:/sbin

fail() {
    printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

driver_libraries() {
    ldconfig -p | awk '/x86-64|AArch64/ && $1 ~ /^lib(cuda|cudadebugger|nvcuvid|nvidia-.*)\.so/ {print $1, $NF}'
}

require_gpus() {
    count=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
    [ "$count" -ge "$gpus" ] || fail "this machine has $count of $gpus GPUs, counted by /dev/nvidia<number>" \
        "choose another \`--gpus\`; without it, the checks that need GPUs are not tested"
    driver_libraries | grep -q '^libcuda\.so\.1 ' || fail "\`ldconfig -p\` does not list libcuda.so.1 of the driver" \
        "install the driver of the GPUs"
}

# As the NVIDIA Container Toolkit does, but with copies
copy_driver() {
    mkdir -p "$root/usr/local/driver" "$root/etc/ld.so.conf.d"
    driver_libraries | while read -r name path; do
        cp -L "$path" "$root/usr/local/driver/$name"
    done
    echo /usr/local/driver >"$root/etc/ld.so.conf.d/000-driver.conf"
    if program=$(command -v nvidia-smi); then
        cp -L "$program" "$root/usr/bin/nvidia-smi"
    fi
    chroot "$root" /sbin/ldconfig
}

# In new namespaces, as root of them; the mounts and processes end with them.
run_checks() {
    mkdir -p "$root/bakehouse" "$root/dev" "$root/etc" "$root/proc" "$root/sys"
    write_checks >"$root/bakehouse/smoke.py"
    rm -f "$root/etc/hosts"
    echo "127.0.0.1 localhost algo-1 $(uname -n)" >"$root/etc/hosts"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    [ "$gpus" = 0 ] || copy_driver
    # EFA reads locked memory
    # shellcheck disable=SC3045 # in dash, too
    ulimit -l unlimited 2>/dev/null || :
    chroot=$(command -v chroot)
    # shellcheck disable=SC2016
    in_environment "$chroot" "$root" sh -c '
        cd "$1"
        python3 -c "
import fcntl, socket, struct

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack(\"16sh22x\", b\"lo\", IFF_UP))"
        exec python3 /bakehouse/smoke.py --seconds "$2" --out /bakehouse/results.json' sh "$directory" "$seconds"
}

if [ "${1-}" = inside ]; then
    root=$2
    run_checks
fi

here=$(cd "$(dirname "$0")" && pwd)
archive=$here/rootfs.tar.gz
# Those of an earlier run
rm -f "$here/results.json"
user='--user --map-root-user' owners=--no-same-owner
if [ "$(id -u)" = 0 ]; then user='' owners=--same-owner; fi
[ "$gpus" = 0 ] || require_gpus
namespaces="$user --mount --ipc --pid --net --fork --kill-child"
# shellcheck disable=SC2086 # several options
problem=$(unshare $namespaces --mount-proc true 2>&1) || fail "the kernel refused namespaces: $problem" \
    "run the script as root, or allow unprivileged user namespaces"
[ -e "$archive" ] || fail "\`$archive\` does not exist" "copy all files of the directory"
echo "bakehouse: unpacking $archive" >&2
[ "$(sha256sum <"$archive")" = "$sha256  -" ] || fail "\`$archive\` is damaged, or belongs to another script" \
    "copy all files of the directory again"

root=$(mktemp -d "$here/root.XXXXXX")
# As root of a user namespace, because directories may be read-only for their owner
# shellcheck disable=SC2086
trap 'unshare $user --fork rm -rf --one-file-system "$root"' EXIT
# The checks are interrupted too, and write the results that they have.
trap : INT TERM HUP
chmod 755 "$root"
# shellcheck disable=SC2086
unshare $user --fork tar -xzp --numeric-owner "$owners" -f "$archive" -C "$root"
code=0
# shellcheck disable=SC2086
unshare $namespaces sh "$0" inside "$root" || code=$?
[ -e "$root/bakehouse/results.json" ] || fail "the checks wrote no results" "see the messages above"
cp "$root/bakehouse/results.json" "$here/results.json"
echo "bakehouse: results in $here/results.json" >&2
exit "$code"
