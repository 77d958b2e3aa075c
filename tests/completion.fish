# SPDX-License-Identifier: Apache-2.0
# completion.fish FILE LINE...: what fish offers, with the completion in FILE, behind each command
# line; "== LINE" before the offers of each.
source $argv[1]
for line in $argv[2..-1]
    echo "== $line"
    complete -C $line | string replace -r '\t.*' '' | string replace -r '^--[a-z-]*=' ''
end
exit 0 # and not that nothing was replaced
