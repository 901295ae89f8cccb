# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# Every KEEL_API declaration stands under a comment that starts with its name and has the keys
# Errors and Since.  One comment may serve several names: "keel_a, keel_b: ...".

function report(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    wrong = 1
}

# The names before the first colon, between commas.
function has_name(comment, name,    head) {
    head = comment
    sub(/:.*/, "", head)
    gsub(/[ *\/]/, "", head)
    return index("," head ",", "," name ",") > 0
}

function check(declaration,    name) {
    name = declaration
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    count++
    if (name !~ /^keel_/) report(name " does not begin with keel_")
    if (!has_name(comment, name)) report(name " has no comment that starts with its name")
    else {
        if (comment !~ /\n \* (.* )?Errors /) report(name " does not say Errors")
        if (comment !~ /\n \* (.* )?Since /) report(name " does not say Since")
    }
}

FNR == 1 { comment = ""; in_comment = 0; declaration = "" }

/^\/\*/ { comment = ""; in_comment = 1 }
in_comment { comment = comment $0 "\n" }
in_comment && /\*\// { in_comment = 0; next }
in_comment { next }

/^KEEL_API / { declaration = $0 }
declaration != "" && !/^KEEL_API / { declaration = declaration " " $0 }
declaration != "" && /;/ { check(declaration); declaration = "" }

END {
    if (!count) { print "no KEEL_API declaration found"; exit 1 }
    print count " declarations"
    exit wrong
}
