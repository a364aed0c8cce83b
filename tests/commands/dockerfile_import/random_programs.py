"""Random shell programs that only write files below their directory."""

import random
from collections.abc import Iterator

COMMANDS = (
    *r"""echo a{n} > f
echo b >> f
printf '%s\n' "x y" > 'g h'
mkdir -p d/e && touch d/e/f
ln -s f l
! test -e nosuch && echo no > n
{{ echo 1; echo 2; }} > both
(cd / && echo sub) > s
chmod 640 f || true
for i in 1 2 3; do echo $i >> loop; done
if [ -f f ]; then echo yes > y; else echo no > y; fi
V=$(echo out; false); echo "$V $?" > v
echo z | tee t | tr z q > q
false; echo after > after
case $A in 1) echo one;; *) echo "other $A";; esac > c
umask 077; touch m
f() {{ echo "$1$2"; }}; f 1 '2 3' > fun
test -e f && rm f; echo gone > r
sleep 0.1 & wait; echo w > w
echo $B > b && echo ${{B:-none}} > c2
false || echo or > or
export E=5; sh -c 'echo $E' > e
set -e; true
echo "$(pwd)" > p
cd /tmp && echo here > "$OLDPWD/here"
echo a && false || echo rescued > res
exit 0
while read x; do echo "<$x>"; done < /etc/hostname > /dev/null
touch -- -x
mkdir k{{1,2}}
echo * > glob""".splitlines(),
    "cat <<E > h\nline $HOME\nE\n",
)


def instructions_of(source: random.Random, programs: int) -> Iterator[str]:
    """Yield instructions of a Dockerfile that only write files, each program in its own directory."""
    # A program that ends at an error would end the build.
    harmless = [command for command in COMMANDS if "set -e" not in command]
    for number in range(programs):
        yield f"WORKDIR /w/{number}"
        commands = [command.format(n=number) for command in source.sample(harmless, source.randint(1, 4))]
        text = source.choice(("; ", " && ")).join(command for command in commands if "\n" not in command)
        if source.random() < 0.2:
            yield f"ENV A={source.randint(1, 3)} B='{number} b'"
        if source.random() < 0.2:
            yield f"ARG B=arg{number}"
        if source.random() < 0.15:
            yield source.choice(('SHELL ["/bin/bash", "-o", "pipefail", "-c"]', 'SHELL ["/bin/sh", "-c"]'))
        form = source.random()
        lines = "\n".join(commands)
        if form < 0.25:
            yield f"RUN <<END\n{lines}\ntrue\nEND"
        elif form < 0.35:
            yield f"COPY <<E copied{number}\ntext\nE"
        else:
            yield f"RUN ({text or 'true'}); true" if source.random() < 0.2 else f"RUN {text or 'true'}; true"


def program(source: random.Random) -> str:
    """Return one program."""
    commands = [command.format(n=1) for command in source.sample(COMMANDS, source.randint(1, 5))]
    lines = [command for command in commands if "\n" not in command and "/tmp" not in command]
    return source.choice(("; ", " && ", " || ", "\n")).join(lines or ["true"])
