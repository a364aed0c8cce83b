#!/bin/sh
# fetch SHA256 URL FILE: the bytes with that sha256, from the first mirror that has them, else from the URL
# A URL debian:PACKAGE=VERSION is a file of that Debian source package, from the apt mirrors of the base
set -eu
sha256=$1 url=$2 file=$3
get() { curl -fsSL --retry 3 --connect-timeout 20 $ca -o "$file" "$1" && [ "$(sha256sum < "$file" | cut -c1-64)" = "$sha256" ]; }
mkdir -p "$(dirname "$file")"
ca=""
[ ! -s /run/secrets/ca ] || ca="--cacert /run/secrets/ca"
if [ -s /run/secrets/mirrors ]; then
    while read -r mirror; do
        get "$mirror/$sha256/$(basename "$file")" 2> /dev/null && exit 0
    done < /run/secrets/mirrors
fi
case $url in
debian:*)
    package=${url#debian:} package=${package%%=*}
    case $package in lib*) letter=$(echo "$package" | cut -c1-4) ;; *) letter=$(echo "$package" | cut -c1) ;; esac
    for mirror in $(grep -ohsE 'https?://[^ ]+' /etc/apt/sources.list /etc/apt/sources.list.d/* | sort -u); do
        pool="$mirror/pool/main/$letter/$package/$(basename "$file")"
        said=$(/usr/lib/apt/apt-helper download-file "$pool" "$file" "SHA256:$sha256" 2>&1) && exit 0
        # Addresses of mirrors may have logins
        echo "$said" | sed 's#://[^/@ ]*@#://#g' >&2
    done ;;
esac
if [ "$sha256" = unknown ]; then
    curl -fsSL --retry 3 --connect-timeout 20 $ca -o "$file" "$url"
    echo "not pinned: $(sha256sum "$file")" >&2
elif ! get "$url"; then
    echo "fetch: $url did not give a file with sha256 $sha256" >&2
    exit 1
fi
