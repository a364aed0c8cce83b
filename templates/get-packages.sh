#!/bin/sh
# get-packages: the files of the distribution that /packages/list names, `sha256 path [site]` a line, each from the
# first place that has it: a mirror, as <prefix>/<sha256>/<file>, else one of the apt sources that the step was
# given, else the site that had it when it was locked
set -eu
cd /packages
: > log
get() {
    set --
    while read -r sha256 path site; do
        file=${path##*/}
        url=$(address)
        [ -e "$file" ] || [ -z "$url" ] || set -- "$@" "$url" "/packages/$file" "SHA256:$sha256"
    done < list
    [ $# = 0 ] || /usr/lib/apt/apt-helper download-file "$@" >> log 2>&1 || true
}
if [ -s /run/secrets/mirrors ]; then
    while read -r place; do
        address() { echo "$place/$sha256/$file"; }
        get
    done < /run/secrets/mirrors
fi
for place in $(grep -ohsE 'https?://[^ ]+' /run/secrets/sources | sort -u); do
    address() { echo "$place/$path"; }
    get
done
address() { echo "${site:+$site/$path}"; }
get
while read -r sha256 path site; do
    echo "$sha256  ${path##*/}"
done < list | sha256sum --check --strict --quiet || {
    # Addresses may have logins
    sed 's#://[^/@ ]*@#://#g' log
    echo "get-packages: no mirror and none of the apt sources has all of these files" >&2
    exit 1
}
rm -f log
