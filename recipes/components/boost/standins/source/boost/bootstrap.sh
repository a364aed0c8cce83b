#!/bin/sh
# A stand-in: b2 is there already
printf '%s\n' "$@" > bootstrap.options
