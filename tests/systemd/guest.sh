#!/usr/bin/env bash
# Runs in vm.sh's guest at each of its starts; /root/stage says how far it got. The commands are those of docs/install.md.
exec >/dev/ttyS1 2>&1
cd /root/gpuqueue
export HOME=/root PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
runs=/sys/fs/cgroup/gpuqueue.slice python=/opt/gpuqueue/bin/python

block() { # block HEADING [FENCE]: the code of that kind under the heading
  awk -v heading="## $1" -v fence="\`\`\`${2:-sh}" '/^## / { here = $0 == heading } here && /^```$/ { code = 0 }
    here && code; here && $0 == fence { code = 1 }' docs/install.md
}
check() { # check WHAT COMMAND...: what it printed is shown where it fails
  local what=$1 said
  shift
  if said=$("$@" 2>&1); then echo "ok   $what"; else printf 'FAIL %s\n%s\n' "$what" "$said"; fi
}
documented() { check "docs/install.md: $1" bash -exc "$(block "$1")"; }
as() { su - "$1" -c "$2"; }
says() { grep -Eq -- "$1" <<<"$(eval "$2")"; }
soon() { # soon PATTERN COMMAND: until the command says so, for two minutes
  local deadline=$((SECONDS + 120))
  while [ $SECONDS -lt $deadline ]; do says "$@" && return; sleep 1; done
  eval "$2"
  return 1
}
start_at() { # start_at TIME: the service is started anew with the clock set to it, tomorrow
  systemctl stop gpuqueued && date -s "tomorrow $1" >/dev/null && systemctl start gpuqueued
}
next() { echo "$1" >/root/stage && sync; }

set_up() {
  useradd -m -s /bin/bash ann && useradd -m -s /bin/bash ben && groupadd project && gpasswd --add ann project
  echo "ann ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/ann
  documented Install
  documented Configure
  mkdir /etc/systemd/system/gpuqueued.service.d
  block Start ini >/etc/systemd/system/gpuqueued.service.d/override.conf
  documented Start
  documented "First steps as an admin"
  check "gq doctor as a user" as ann "gq doctor"
  check "the unit verifies" systemd-analyze verify gpuqueued.service
}

run_jobs() {
  cat >/home/ann/hold.sh <<'JOB'
id; umask; cat /proc/self/cgroup /proc/self/oom_score_adj; touch ~/mine /tmp/mine && sudo -n true && echo "all allowed"; sleep 1000
JOB
  cat >/home/ann/hungry.sh <<'JOB'
python3 -c 'held = [bytearray(b"x" * (1 << 20)) for _ in range(1024)]' &
wait; sleep 1000
JOB
  cat >/home/ann/escape.sh <<'JOB'
(setsid env -i bash -c 'exec -a escaped sleep 1000' &)
sleep 2; sleep "$1"
JOB
  as ann "umask 027; gq submit --vram 1G hold.sh"
  as ben "gq submit --vram 2G --cpus 1 --checkpoint-dir out -- $python -m gpuqueue.simjob --steps 999999 --step-seconds 0.2 --save-every 20"
  check "a job runs as its submitter" soon "groups=.*project" "as ann 'gq logs 1'"
  check "with its umask, in a cgroup of its own, an ordinary process, that may use home, /tmp and sudo" \
    soon "0027 0::/gpuqueue.slice/gq-1-1-[0-9a-f]*.service/job 0 all allowed" "as ann 'gq logs 1' | tr '\n' ' '"
  check "the units say whose" soon "job 2, attempt 1, of ben" "systemctl list-units 'gq-*'"
  check "a log is its owner's" says "may not read" "as ben 'gq logs 1' 2>&1"
  local before after
  before=$(cat $runs/*/job/cgroup.procs)
  systemctl restart gpuqueued && systemctl stop gpuqueued && sleep 2 && systemctl start gpuqueued
  after=$(cat $runs/*/job/cgroup.procs)
  check "stop and restart of the daemon leave jobs alone" [ "$before" = "$after" ]

  as ann "gq submit --vram 1G --mem 200M hungry.sh"
  check "the kernel holds a job to --mem, workers and all" soon "killed by SIGKILL.*host out of memory.*--mem is 200 MiB" "as ann 'gq why 3'"
  check "memory.events is the evidence" says "memory.events of the job's cgroup: oom_kill [2-9]" "as ann 'gq show 3'"
  check "the others live" [ "$before" = "$(cat $runs/*/job/cgroup.procs)" ]
  as ann "gq submit --vram 1G escape.sh 1; gq submit --vram 1G escape.sh 1000"
  check "who escaped is ended after the main process" soon "succeeded" "as ann 'gq why 4'"
  check "and found while it runs" soon "^escaped" "ps -e -o args"
  as ann "gq cancel 5"
  check "and goes with a cancelled job" soon "cancelled [0-9]+s ago" "as ann 'gq why 5'"
  check "nothing is left of them" says "^0 2 2\$" "echo \$(pgrep -c -f ^escaped) \$(ls -d $runs/gq-* | wc -l) \$(systemctl list-units --no-legend 'gq-*' | wc -l)"
}

go_through_the_night() {
  install -d -m 700 /var/lib/gpuqueue/backups
  for day in 1 2 3 4 5 6 7 8; do touch "/var/lib/gpuqueue/backups/nightly-2020-01-0$day.db"; done
  start_at 03:09:30
  check "retention at 3:10" soon "retention done" "journalctl -t gpuqueued"
  date -s yesterday >/dev/null
  start_at 03:29:30
  check "backup at 3:30" soon "backup done" "journalctl -t gpuqueued"
  check "seven are kept" [ "$(ls /var/lib/gpuqueue/backups | wc -l)" = 7 ]
  check "docs/install.md: Back up and restore" bash -exc "$(block "Back up and restore" | sed "s/2026-01-31/$(date +%F)/")"
  check "the restored queue has its jobs" soon "2 running" "gq"
  check "no warning in the journal" says "^-- No entries" "journalctl -t gpuqueued -p warning"
}

case $(cat /root/stage 2>/dev/null) in
  "")
    set_up
    run_jobs
    go_through_the_night
    next rebooted
    systemctl reboot
    ;;
  rebooted)
    check "after a reboot a job resumes from its checkpoint" soon "gq: resuming from /home/ben/out/checkpoint-" "as ben 'gq logs 2 --attempt 2'"
    check "all of the boot before have an outcome" says "1 .*the machine restarted" "as ann 'gq show 1'"
    check "the machine is well" soon "running" "systemctl is-system-running"
    next cut
    echo "cut the power"
    ;;
  cut)
    check "after a power cut a job resumes from its checkpoint" soon "gq: resuming from /home/ben/out/checkpoint-" "as ben 'gq logs 2 --attempt 3'"
    python3 -m venv /root/venv && /root/venv/bin/pip install --quiet pytest pytest-timeout hypothesis
    (cd /root/venv/lib/python3*/site-packages && echo /opt/gpuqueue/lib/python3*/site-packages >daemon.pth)
    check "the contract of the backend, in every containment" /root/venv/bin/python -m pytest -q -p no:cacheprovider tests/contracts/test_backend.py tests/systemd
    sed -i '/^__version__/s/"$/.1"/' gpuqueue/version.py
    documented Upgrade
    check "the new release runs" says "^gpuqueued .*\.1 on" "gq version"
    check "and finds the jobs" soon "2 running" "gq"
    as ben "gq cancel --all" && as ann "gq cancel --all"
    check "all have ended" soon "^0\$" "ls -d $runs/gq-* 2>/dev/null | wc -l"
    documented Uninstall
    check "nothing is left" [ -z "$(find / -xdev -iname '*gpuqueue*' -not -path '/root/*' -not -path '/tmp/*')" ]
    echo "the end"
    systemctl poweroff
    ;;
esac
