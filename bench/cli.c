/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Arguments against a table of options. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 2^k, the way loss scales are spoken of. */
static bool power_of_two(const char *text, double *out)
{
    if (strncmp(text, "2^", 2) != 0) return false;
    char *end;
    const long exponent = strtol(text + 2, &end, 10);
    if (end == text + 2 || *end || exponent < -1074 || exponent > 1023) return false;
    *out = ldexp(1, (int)exponent);
    return true;
}

bool cli_real(const char *text, double *out)
{
    if (power_of_two(text, out)) return true;
    if (!*text || isspace((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    const bool overflow = errno == ERANGE && fabs(value) > 1;
    if (end == text || *end || overflow) return false;
    *out = value;
    return true;
}

bool cli_int(const char *text, int64_t *out)
{
    double power;
    if (power_of_two(text, &power)) {
        if (!(power >= 1 && power < 0x1p63)) return false;
        *out = (int64_t)power;
        return true;
    }
    if (!*text || isspace((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno == ERANGE) return false;
    *out = value;
    return true;
}

static bool is_name(const cli_option *row, const char *name, size_t length)
{
    const char *known[] = {row->name, row->alias};
    for (int i = 0; i < 2; i++) {
        if (known[i] && strlen(known[i]) == length && !memcmp(known[i], name, length)) return true;
    }
    return false;
}

static const cli_option *find_option(const cli_option *rows, const char *name, size_t length)
{
    for (const cli_option *row = rows; row->name; row++) {
        if (is_name(row, name, length)) return row;
    }
    return NULL;
}

static const cli_option *find_letter(const cli_option *rows, char letter)
{
    for (const cli_option *row = rows; row->name; row++) {
        if (row->letter && row->letter == letter) return row;
    }
    return NULL;
}

static int unknown_option(const cli_option *rows, const char *argument, const char *name)
{
    const char *names[128];
    int count = 0;
    for (const cli_option *row = rows; row->name && count < 126; row++) {
        names[count++] = row->name;
        if (row->alias) names[count++] = row->alias;
    }
    const int length = (int)strcspn(argument, "=");
    const char *near = cli_nearest(name, names, count);
    if (near) {
        return cli_fail(CLI_USAGE, "unknown option %.*s; did you mean --%s?", length, argument,
                        near);
    }
    return cli_fail(CLI_USAGE, "unknown option %.*s; see --help", length, argument);
}

static int store_int(const cli_option *row, const char *text)
{
    int64_t value;
    if (!cli_int(text, &value) || (double)value < row->lo || (double)value > row->hi) {
        return cli_fail(CLI_USAGE, "--%s=%s (want a whole number in %.15g..%.15g)", row->name, text,
                        row->lo, row->hi);
    }
    *(int64_t *)row->dest = value;
    return CLI_OK;
}

/* Bounds far from 1 are powers of two, and read best as such. */
static const char *bound_text(double bound, char buffer[32])
{
    int exponent;
    const bool is_power = frexp(bound, &exponent) == 0.5 && abs(exponent) > 20;
    if (is_power) {
        snprintf(buffer, 32, "2^%d", exponent - 1);
    } else {
        snprintf(buffer, 32, "%.9g", bound);
    }
    return buffer;
}

static int store_real(const cli_option *row, const char *text)
{
    double value;
    if (!cli_real(text, &value) || !(value >= row->lo && value <= row->hi)) {
        char lo[32], hi[32];
        return cli_fail(CLI_USAGE, "--%s=%s (want a number in %s..%s)", row->name, text,
                        bound_text(row->lo, lo), bound_text(row->hi, hi));
    }
    *(double *)row->dest = value;
    return CLI_OK;
}

static int store_choice(const cli_option *row, const char *text)
{
    char wanted[256] = "";
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(row->choices[i], text) == 0) {
            *(int *)row->dest = i;
            return CLI_OK;
        }
        const size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%s", i ? ", " : "", row->choices[i]);
    }
    return cli_fail(CLI_USAGE, "--%s=%s (want one of %s)", row->name, text, wanted);
}

static int store_parsed(const cli_option *row, const char *text)
{
    const char *wanted = row->parse(text, row->dest);
    if (!wanted) return CLI_OK;
    return cli_fail(CLI_USAGE, "--%s=%s (%s)", row->name, text, wanted);
}

static int store_text(const cli_option *row, const char *text)
{
    if (!*text) return cli_fail(CLI_USAGE, "--%s is empty (%s)", row->name, row->help);
    *(const char **)row->dest = text;
    return CLI_OK;
}

static int store(const cli_option *row, const char *text)
{
    switch (row->kind) {
    case CLI_INT:
        return store_int(row, text);
    case CLI_REAL:
        return store_real(row, text);
    case CLI_TEXT:
        return store_text(row, text);
    case CLI_CHOICE:
        return store_choice(row, text);
    case CLI_PARSED:
        return store_parsed(row, text);
    case CLI_FLAG:
    case CLI_SHORTHAND:
        break;
    }
    return cli_fail(CLI_USAGE, "--%s takes no value, got '%s'", row->name, text);
}

static int store_shorthand(const cli_option *rows, const cli_option *row)
{
    const char *value = strchr(row->means, '=') + 1;
    return store(find_option(rows, row->means, (size_t)(value - 1 - row->means)), value);
}

/* One option with what belongs to it; *next moves past a value taken from the next argument. */
static int take(const cli_option *rows, const cli_option *row, const char *inline_value,
                char **argv, int argc, int *next)
{
    if (inline_value) return store(row, inline_value);
    if (row->kind == CLI_FLAG) {
        *(bool *)row->dest = true;
        return CLI_OK;
    }
    if (row->kind == CLI_SHORTHAND) return store_shorthand(rows, row);
    if (*next >= argc || strncmp(argv[*next], "--", 2) == 0) {
        return cli_fail(CLI_USAGE, "--%s needs a value (%s)", row->name, row->help);
    }
    return store(row, argv[(*next)++]);
}

static int take_long(const cli_option *rows, char **argv, int argc, int *next)
{
    const char *argument = argv[(*next)++];
    const char *name = argument + 2;
    const size_t length = strcspn(name, "=");
    const cli_option *row = find_option(rows, name, length);
    if (row) return take(rows, row, name[length] ? name + length + 1 : NULL, argv, argc, next);

    const cli_option *negated = strncmp(name, "no-", 3) == 0 && !name[length]
                                    ? find_option(rows, name + 3, length - 3)
                                    : NULL;
    if (!negated || negated->kind != CLI_FLAG) return unknown_option(rows, argument, name);
    *(bool *)negated->dest = false;
    return CLI_OK;
}

static int take_short(const cli_option *rows, char **argv, int argc, int *next)
{
    const char *argument = argv[(*next)++];
    const cli_option *row = find_letter(rows, argument[1]);
    if (!row) return unknown_option(rows, argument, argument + 1);
    const char *value = argument[2] ? argument + 2 + (argument[2] == '=') : NULL;
    return take(rows, row, value, argv, argc, next);
}

/* -1.5 and -inf are numbers, - is a name; -x is an option. */
static bool is_operand(const char *argument)
{
    double number;
    return argument[0] != '-' || !argument[1] ||
           (argument[1] != '-' && cli_real(argument, &number));
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    }
    return false;
}

static int take_all(const cli_usage *usage, int argc, char **argv, cli_args *out)
{
    bool only_operands = false;
    for (int i = 1; i < argc;) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
            i++;
        } else if (only_operands || is_operand(argv[i])) {
            if (!usage->operands) {
                return cli_fail(CLI_USAGE, "unexpected '%s'; see --help", argv[i]);
            }
            out->operands[out->count++] = argv[i++];
        } else {
            const bool is_long = argv[i][1] == '-';
            const int code = (is_long ? take_long : take_short)(usage->options, argv, argc, &i);
            if (code != CLI_OK) return code;
        }
    }
    return CLI_OK;
}

bool cli_parse(const cli_usage *usage, int argc, char **argv, cli_args *out)
{
    *out = (cli_args){.exit_code = CLI_OK, .operands = argv + 1};
    if (wants_help(argc, argv)) {
        cli_help(usage);
        return false;
    }
    out->exit_code = take_all(usage, argc, argv, out);
    return out->exit_code == CLI_OK;
}
