/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What a UTF-8 character is. */
#ifndef KEELI_UTF8_H
#define KEELI_UTF8_H

/* Bytes of the character at text, of which left bytes may be read; 0 if it is none. */
static inline int keeli_utf8_length(const char *text, long long left)
{
    const unsigned char *c = (const unsigned char *)text;
    const int n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (c[0] > 0xf4 || n > left) return 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    const int overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const int too_large = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || too_large ? 0 : n;
}

/* Write a code point, not a surrogate, as at most 4 bytes; return how many. */
static inline int keeli_utf8_put(char *out, unsigned point)
{
    const int n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, point >>= 6) out[i] = (char)(0x80u | (point & 0x3fu));
    out[0] = (char)(lead[n] | point);
    return n;
}

#endif
