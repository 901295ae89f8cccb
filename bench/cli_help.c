/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* Help from the option table, and the nearest name to a misspelt one. */
#include "cli.h"
#include "cli_name.h"
#include "json.h"

#include <string.h>

static void join(char *buffer, size_t size, const char *before, const char *text)
{
    const size_t used = strlen(buffer);
    snprintf(buffer + used, size - used, "%s%s", before, text);
}

/* "-s, --steps, --max-steps N" */
static void option_names(const cli_option *row, char *buffer, size_t size)
{
    buffer[0] = 0;
    if (row->letter) snprintf(buffer, size, "-%c, ", row->letter);
    join(buffer, size, "--", row->name);
    if (row->alias) join(buffer, size, ", --", row->alias);
    if (row->kind == CLI_FLAG || row->kind == CLI_SHORTHAND) return;
    join(buffer, size, " ", row->value ? row->value : "VALUE");
}

static void default_text(const cli_option *row, char *buffer, size_t size)
{
    char number[JSON_NUMBER_SIZE];
    const char *text = row->default_text;
    if (!text) {
        switch (row->kind) {
        case CLI_INT:
            text = json_number((double)*(const int64_t *)row->dest, number);
            break;
        case CLI_REAL:
            text = json_number(*(const double *)row->dest, number);
            break;
        case CLI_TEXT:
            text = *(const char *const *)row->dest;
            break;
        case CLI_CHOICE:
            text = row->choices[*(const int *)row->dest];
            break;
        case CLI_FLAG:
            text = *(const bool *)row->dest ? "on" : NULL;
            break;
        case CLI_PARSED:
        case CLI_SHORTHAND:
            break;
        }
    }
    buffer[0] = 0;
    if (text && *text) snprintf(buffer, size, " (default %s)", text);
}

static void print_choices(const cli_option *row)
{
    if (row->kind != CLI_CHOICE) return;
    for (int i = 0; row->choices[i]; i++) printf("%s%s", i ? ", " : ": ", row->choices[i]);
}

static void print_option(const cli_option *row, int width)
{
    char names[96], text[96];
    option_names(row, names, sizeof names);
    default_text(row, text, sizeof text);
    printf("  %-*s  ", width, names);
    if (row->kind == CLI_SHORTHAND && !row->help) {
        printf("--%s", row->means);
    } else {
        printf("%s", row->help);
        print_choices(row);
    }
    printf("%s\n", text);
}

static int names_width(const cli_option *rows)
{
    int width = (int)strlen("-h, --help");
    for (const cli_option *row = rows; row->name; row++) {
        char names[96];
        option_names(row, names, sizeof names);
        const int length = (int)strlen(names);
        if (length > width) width = length;
    }
    return width;
}

static void print_examples(const char *examples)
{
    printf("\nexamples:\n");
    while (*examples) {
        const int length = (int)strcspn(examples, "\n");
        printf("  %.*s\n", length, examples);
        examples += length + (examples[length] == '\n');
    }
}

void cli_help(const cli_usage *usage)
{
    printf("keel %s: %s\n\n", cli_current.name, cli_current.summary);
    printf("usage: keel %s [options]%s%s\n", cli_current.name, usage->operands ? " " : "",
           usage->operands ? usage->operands : "");
    if (usage->about) printf("\n%s\n", usage->about);
    printf("\noptions:\n");
    const int width = names_width(usage->options);
    for (const cli_option *row = usage->options; row->name; row++) print_option(row, width);
    printf("  %-*s  this text\n", width, "-h, --help");
    if (usage->examples) print_examples(usage->examples);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn one word into the other. */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
    enum { LONGEST = 32 };
    int d[LONGEST + 1][LONGEST + 1];
    if (na > LONGEST || nb > LONGEST) return LONGEST;
    for (size_t i = 0; i <= na; i++) d[i][0] = (int)i;
    for (size_t k = 0; k <= nb; k++) d[0][k] = (int)k;
    for (size_t i = 1; i <= na; i++) {
        for (size_t k = 1; k <= nb; k++) {
            const int differs = a[i - 1] != b[k - 1];
            int best = smaller(d[i - 1][k] + 1, d[i][k - 1] + 1);
            best = smaller(best, d[i - 1][k - 1] + differs);
            const bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (swapped) best = smaller(best, d[i - 2][k - 2] + 1);
            d[i][k] = best;
        }
    }
    return d[na][nb];
}

const char *cli_nearest(const char *word, const char *const *names, int count)
{
    const size_t length = strcspn(word, "=");
    const char *nearest = NULL;
    int best = (int)length / 3 + 2; /* a third of the letters may be wrong, and one more */
    for (int i = 0; i < count; i++) {
        const size_t known = strlen(names[i]);
        const bool prefix = length >= 3 && known > length && !memcmp(names[i], word, length);
        const int cost = prefix ? 1 : distance(word, length, names[i], known);
        if (cost >= best || cost >= (int)length) continue;
        best = cost;
        nearest = names[i];
    }
    return nearest;
}
