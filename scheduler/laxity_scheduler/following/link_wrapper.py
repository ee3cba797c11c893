"""What runs in a link's job: the chain's lock, then the user's own command.

A queue starts predecessor and successor whenever there is room. The lock on the shared file system
lets one of them train. A lock is let go when its process ends, however that happens, so a killed
link never blocks the next. It is plain sh with flock.
"""

import signal
from typing import Final

from laxity import names
from laxity.job.worker_exits import SIGNALLED
from laxity.worker.chain_link import EXIT_UNFINISHED, TRAINED

GOES_ON: Final = (0, EXIT_UNFINISHED)  # exit codes after which the chain goes on

_BODY: Final = """
# Written by laxity chain. One link of a chain trains at a time: the one that holds the lock.
{setup}
export {link_name}=$link {folder_name}="$folder"
lock=$folder/lock
[ "$index" -eq 0 ] || lock=$lock.$index # each worker of a link waits for the one before it
note() {{
  [ "$index" -ne 0 ] || {{
    printf '%s\\n' "$2" >"$folder/links/.$1" && mv "$folder/links/.$1" "$folder/links/$1"
  }}
}}
exec 9>>"$lock" && flock 9 || {{ echo "laxity chain: no lock on $lock" >&2; exit 1; }}
[ ! -e "$folder/done" ] || exit 0
if read -r before _ 2>/dev/null <"$folder/links/$((link - 1)).exit"; then
  case $before in
    {goes_on}) ;;
    *) [ "$before" -gt {signalled} ] || {{ echo "laxity chain: the link before failed" >&2; exit 1; }} ;;
  esac
fi
if read -r ran 2>/dev/null <"$folder/links/$link.started" && [ "$ran" != "$job" ]; then
  echo "laxity chain: link $link already ran as job $ran" >&2
  exit {unfinished}
fi
note "$link.started" "$job"
[ "$index" -ne 0 ] || rm -f "$folder/links/$link.exit" # of this job's start before, if it was queued again
{ends_at}
{command} <&0 &
child=$! received=
for signal in HUP INT QUIT USR1 USR2 TERM; do
  trap "interrupted=1 received=$signal; kill -s $signal $child 2>/dev/null" "$signal"
done
while interrupted=; wait "$child"; code=$?; [ -n "$interrupted" ] && kill -0 "$child" 2>/dev/null; do
  :
done
if [ -n "$interrupted" ]; then
  signalled=$code
  wait "$child"
  code=$?
  case $code in -1 | 127) code=$signalled ;; esac # the shell has forgotten it already
fi
[ "$code" -ne 0 ] || {is_done} || touch "$folder/done"
noted=$code
case $code in
  {goes_on}) ;;
  *)
    case " ${{requeued-}} " in *" $code "*) received=TERM ;; esac # the queue starts it again after these
    [ "$received" != TERM ] || noted={terminated} # its time limit, or it is queued again: no failure
    ;;
esac
note "$link.exit" "$noted $job"
exit "$code"
"""


def link_body(*, setup: str, ends_at: str, command: str, code_0_is_done: bool = False) -> str:
    """The script's text. `setup` sets $folder, $link, $job and $index; `ends_at` may export when it ends.

    With `code_0_is_done` the training is complete when the command ends well, else once it has
    trained all epochs or written the file `done` itself.
    """
    return _BODY.format(
        setup=setup.strip(),
        ends_at=ends_at.strip(),
        command=command,
        goes_on="|".join(str(code) for code in GOES_ON),
        signalled=SIGNALLED,
        terminated=SIGNALLED + signal.SIGTERM,
        unfinished=EXIT_UNFINISHED,
        is_done="false" if code_0_is_done else f'[ ! -e "$folder/{TRAINED}" ]',
        link_name=names.ENV_CHAIN_LINK,
        folder_name=names.ENV_CHAIN_FOLDER,
    ).lstrip()
