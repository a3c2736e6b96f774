#!/bin/bash
# A fake `gangway head|worker|compiler` for supervisor_test. Files in $FAKE_ROLE_DIR choose its behaviour. It appends
# its name and pid to the file `starts` there. It waits for the test's fifo or for a signal, never for a time.
role=$1
name=$role
while [ $# -gt 0 ]; do
  case $1 in
    --island) island=$2 ;;
    --index) name=island$island-worker$2 ;;
    --number) [ "$2" = 0 ] || name=compiler$2 ;;
  esac
  shift
done
echo "$name $$" >> "$FAKE_ROLE_DIR/starts"
[ -e "$FAKE_ROLE_DIR/stubborn-$name" ] || trap 'echo "$name" >> "$FAKE_ROLE_DIR/ends"; exit 0' TERM
[ ! -e "$FAKE_ROLE_DIR/stubborn-$name" ] || trap '' TERM
if [ -e "$FAKE_ROLE_DIR/broken-$name" ]; then
  echo "device $name is on fire" >&2
  exit 3
fi
if [ -e "$FAKE_ROLE_DIR/hopeless-$name" ]; then
  echo "$name has no device" >&2
  exit 78
fi
if [ "$role" = head ]; then
  echo "listening fake:1"
  echo "event island0/worker0 is up (fake)"
  echo "waiting island0/worker1"
  [ -e "$FAKE_ROLE_DIR/incomplete" ] || echo "ready"
fi
mkfifo "$FAKE_ROLE_DIR/wait-$$" 2> /dev/null
while true; do
  read -r word < "$FAKE_ROLE_DIR/wait-$$"
  if [ "$word" = want ]; then
    echo "wanted compiler1"
  fi
  if [ "$word" = flood ]; then
    for i in $(seq 20000); do
      echo "event $i of many lines, each of which is about as long as this one, which has a hundred bytes"
    done 2> /dev/null
    touch "$FAKE_ROLE_DIR/flooded"
  fi
done
