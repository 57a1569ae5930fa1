#!/usr/bin/env bash
# Installs gpuqueue as docs/install.md says in a virtual Debian 12 and goes through its life: README.md beside this.
# Not in CI: as root, by hand. Needs debootstrap, qemu-system-x86_64, mkfs.ext4 and a pip; the guest needs no network.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-/var/tmp/gpuqueue-vm}
case $(uname -m) in x86_64) ;; *) echo "vm.sh: made for x86_64" >&2; exit 2 ;; esac
for tool in debootstrap qemu-system-x86_64 mkfs.ext4 git; do
  command -v "$tool" >/dev/null || { echo "vm.sh: $tool is missing: apt install debootstrap qemu-system-x86 git" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "vm.sh: only root can make the guest's files: run it as root" >&2; exit 2; }
mkdir -p "$work/wheels"

if [ ! -e "$work/root/made" ]; then
  rm -rf "$work/root"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,libpam-systemd,procps,sudo,python3,python3-venv,linux-image-cloud-amd64 \
    bookworm "$work/root" ${MIRROR:+"$MIRROR"} >"$work/debootstrap.log"
  touch "$work/root/made"
fi
"${PYTHON:-python3}" -m pip download -qq --dest "$work/wheels" --python-version 3.11 --only-binary :all: \
  "$source" hatchling pytest pytest-timeout hypothesis
disk=$work/disk.img root=$work/root
rm -rf "$root/root/gpuqueue" "$root/root/wheels"
git clone --quiet "$source" "$root/root/gpuqueue"
cp -r "$work/wheels" "$root/root/wheels"
echo gpunode >"$root/etc/hostname"
echo 127.0.0.1 localhost gpunode >"$root/etc/hosts"
cat >"$root/etc/systemd/system/life.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
ExecStart=/bin/bash /root/gpuqueue/tests/systemd/guest.sh
UNIT
mkdir -p "$root/etc/systemd/system/graphical.target.wants"
ln -sf ../life.service "$root/etc/systemd/system/graphical.target.wants/life.service"
rm -f "$disk"
truncate -s 8G "$disk"
mkfs.ext4 -q -d "$root" "$disk"

# KVM where it works; a guest without it takes three times as long.
accelerator=(-accel "${ACCEL:-kvm}" -cpu "$([ "${ACCEL:-kvm}" = kvm ] && echo host || echo max)")
: >"$work/said.txt"
boot() { # until it powers off, or asks for the power to be cut
  : >"$work/now.txt"
  qemu-system-x86_64 "${accelerator[@]}" -smp 2 -m 4G -display none -monitor none -nic none \
    -kernel "$(echo "$root"/boot/vmlinuz-*)" -initrd "$(echo "$root"/boot/initrd.img-*)" \
    -append "root=/dev/vda rw console=ttyS0 panic=-1" -drive "file=$disk,if=virtio,format=raw" \
    -serial "file:$work/console.txt" -serial "file:$work/now.txt" &
  local machine=$!
  while kill -0 $machine 2>/dev/null; do
    if grep -q "^cut the power" "$work/now.txt"; then kill -KILL $machine; fi
    sleep 1
  done
  tr -d '\r' <"$work/now.txt" | tee -a "$work/said.txt"
}
boot # ends with a power cut
boot
grep -q "^the end" "$work/said.txt" || { echo "vm.sh: the guest did not get to its end: see $work/console.txt" >&2; exit 1; }
! grep "^FAIL" "$work/said.txt"
