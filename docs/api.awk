# SPDX-License-Identifier: Apache-2.0
# Copyright the Keel authors
# One public header as a section of docs/api.md: its opening comment as prose, then what it declares
# block by block, comments as they stand.  A block ends at a blank line outside braces.

# "/* text */" without its signs.
function prose(text) {
    gsub(/^\/\* ?|[ \n]*\*\/\n*$/, "", text)
    gsub(/\n \* ?/, "\n", text)
    gsub(/\n  /, "\n      ", text) # a drawing: indented code in Markdown
    return text
}

# What a block is about: the functions its comment names, or the types it defines.
function title(block,    names) {
    if (block ~ /\nKEEL_API /) {
        names = block
        sub(/^\n*\/\* /, "", names)
        sub(/:.*/, "", names)
        gsub(/\n \*/, "", names)
        gsub(/[a-z0-9_]+/, "`&`", names)
        return names
    }
    if (match(block, /\n} keel_[a-z0-9_]+;/) || match(block, /\nstruct keel_[a-z0-9_]+ {/) ||
        match(block, /\ntypedef [^{(]*[ *]keel_[a-z0-9_]+;/) || match(block, /\(\*keel_[a-z0-9_]+\)/)) {
        names = substr(block, RSTART, RLENGTH)
        sub(/[^a-z0-9_]*$/, "", names)
        sub(/.*[^a-z0-9_]/, "", names)
        return "`" names "`"
    }
    return ""
}

function flush_block() {
    if (block ~ /[^\n]/) {
        if (title("\n" block) != "") printf "\n### %s\n", title("\n" block)
        printf "\n```c\n%s```\n", block
    }
    block = ""
}

BEGIN {
    name = ARGV[1]
    sub(/.*include\//, "", name)
    printf "\n## %s\n", name
}

/^#(ifndef|define) KEEL_[A-Z_]*_H$/ || /^#include/ && !inside { next }
/^\/\* SPDX/, /\*\// { next }

# Before the declarations: the comment on the header as a whole.
!started && /^\/\*/ { in_intro = 1 }
in_intro { intro = intro $0 "\n" }
in_intro && /\*\// { in_intro = 0; printf "\n%s\n", prose(intro) }
!started && !/^KEEL_BEGIN_DECLS/ { next }
/^KEEL_BEGIN_DECLS/ { started = 1; next }
/^KEEL_END_DECLS/ { exit }

# Helpers behind macros are no interface.
/^static inline / { helper = 1 }
helper { if (/^}/) helper = 0; next }

{
    line = $0
    depth += gsub(/{/, "{", line) - gsub(/}/, "}", line)
    inside = depth > 0
    if ($0 == "" && !inside) flush_block()
    else block = block $0 "\n"
}

END { flush_block() }
