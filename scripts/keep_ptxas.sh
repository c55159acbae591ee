#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# keep_ptxas.sh OBJECT COMMAND...: runs a compile command; what ptxas reports of it is kept as OBJECT.ptxas, everything else goes on to stderr.
case "${1-}" in -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;; esac
object=$1
shift
"$@" 2> "$object.ptxas"
status=$?
grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$' "$object.ptxas" >&2
exit $status
