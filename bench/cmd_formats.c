/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* keel formats: the registry, one format, one code, or one value in every format. */
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "formats_view.h"
#include "json.h"

/* What an operand turned out to be. */
typedef enum item_kind { ITEM_FORMAT, ITEM_CODE, ITEM_VALUE } item_kind;

typedef struct item {
    item_kind kind;
    const keel_format_info *format; /* ITEM_FORMAT */
    uint32_t code;                  /* ITEM_CODE */
    double value;                   /* ITEM_VALUE */
} item;

/* ---- formats ---- */

static const char *power_text(double value, char buffer[16])
{
    int exponent;
    buffer[0] = 0;
    if (frexp(value, &exponent) == 0.5) snprintf(buffer, 16, "2^%d", exponent - 1);
    return buffer;
}

static void show_table(void)
{
    printf("%-6s %4s %4s %4s %4s  %-15s %-13s %-13s %-13s %-4s %-4s %s\n", "format", "bits", "exp",
           "man", "bias", "max", "min normal", "min subnormal", "epsilon", "inf", "nan", "torch");
    for (int32_t i = 0; keel_format_at(i); i++) {
        const keel_format_info *f = keel_format_at(i);
        const char *torch = keel_format_name_in(f->id, KEEL_ECOSYSTEM_TORCH);
        printf("%-6s %4" PRId32 " %4" PRId32 " %4" PRId32 " %4" PRId32
               "  %-15.9g %-13.7g %-13.7g %-13.7g %-4s %-4s %s\n",
               f->name, f->bits, f->exponent_bits, f->mantissa_bits, f->bias, f->max, f->min_normal,
               f->min_subnormal, f->epsilon, f->has_inf ? "yes" : "-", f->has_nan ? "yes" : "-",
               torch ? torch : "-");
    }
    printf("\nnames in other software: keel formats <format>\n");
}

static void show_limit(const char *label, double value)
{
    char number[JSON_NUMBER_SIZE], power[16];
    const bool is_power = *power_text(value, power);
    printf("  %-14s %s%s%s%s\n", label, json_number(value, number), is_power ? " (" : "", power,
           is_power ? ")" : "");
}

static void show_names(const keel_format_info *f)
{
    printf("  names\n");
    for (int32_t e = 0; keel_ecosystem_name((keel_ecosystem)e); e++) {
        const char *name = keel_format_name_in(f->id, (keel_ecosystem)e);
        const int32_t code = keel_format_code_in(f->id, (keel_ecosystem)e);
        if (!name && code < 0) continue;
        printf("    %-12s %s", keel_ecosystem_name((keel_ecosystem)e), name ? name : "-");
        if (code >= 0) printf(" = %" PRId32, code);
        putchar('\n');
    }
}

static void show_format(const keel_format_info *f)
{
    const bool has_sign = f->bits > f->exponent_bits + f->mantissa_bits;
    printf("%s%s%s: %" PRId32 " bits (%d sign, %" PRId32 " exponent, %" PRId32
           " mantissa), bias %" PRId32 "\n",
           cli_style(stdout, CLI_BOLD), f->name, cli_style(stdout, CLI_RESET), f->bits, has_sign,
           f->exponent_bits, f->mantissa_bits, f->bias);
    show_limit("max", f->max);
    show_limit("min normal", f->min_normal);
    show_limit("min subnormal", f->min_subnormal);
    show_limit("epsilon", f->epsilon);
    printf("  %-14s %s\n  %-14s %s\n", "infinity", f->has_inf ? "yes" : "no", "nan",
           f->has_nan ? "yes" : "no");
    if (!f->can_encode) printf("  %-14s described and decoded only\n", "encoding");
    show_names(f);
}

static void json_format(json *j, const keel_format_info *f)
{
    json_object(j, NULL);
    json_text(j, "name", f->name);
    json_int(j, "bits", f->bits);
    json_int(j, "exponent_bits", f->exponent_bits);
    json_int(j, "mantissa_bits", f->mantissa_bits);
    json_int(j, "bias", f->bias);
    json_real(j, "max", f->max);
    json_real(j, "min_normal", f->min_normal);
    json_real(j, "min_subnormal", f->min_subnormal);
    json_real(j, "epsilon", f->epsilon);
    json_bool(j, "has_inf", f->has_inf);
    json_bool(j, "has_nan", f->has_nan);
    json_bool(j, "can_encode", f->can_encode);
    json_object(j, "names");
    for (int32_t e = 0; keel_ecosystem_name((keel_ecosystem)e); e++) {
        const char *name = keel_format_name_in(f->id, (keel_ecosystem)e);
        if (name) json_text(j, keel_ecosystem_name((keel_ecosystem)e), name);
    }
    json_end(j);
    json_object(j, "codes");
    for (int32_t e = 0; keel_ecosystem_name((keel_ecosystem)e); e++) {
        const int32_t code = keel_format_code_in(f->id, (keel_ecosystem)e);
        if (code >= 0) json_int(j, keel_ecosystem_name((keel_ecosystem)e), code);
    }
    json_end(j);
    json_end(j);
}

/* ---- operands ---- */

static int find_format(const char *name, const keel_format_info **out)
{
    keel_format id;
    const char *note = NULL;
    const keel_status status = keel_format_find(name, &id, &note);
    if (status != KEEL_OK) return cli_library_error(status);
    if (note) cli_note("%s", note);
    *out = keel_format_get(id);
    return CLI_OK;
}

/* 0x7e is a code; 0x1p-9 is a value. */
static bool is_code(const char *text)
{
    return text[0] == '0' && (text[1] == 'x' || text[1] == 'X') &&
           text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] == 0 && text[2] != 0;
}

static int read_code(const char *text, const keel_format_info *as, item *out)
{
    const unsigned long long code = strtoull(text, NULL, 16);
    const int32_t bits = as ? as->bits : 32;
    if (strlen(text) > 18 || code >> bits != 0) {
        return cli_fail(CLI_USAGE, "code %s is wider than %" PRId32 " bits%s%s", text, bits,
                        as ? " of " : "", as ? as->name : "");
    }
    *out = (item){.kind = ITEM_CODE, .code = (uint32_t)code};
    return CLI_OK;
}

static int read_item(const char *text, const keel_format_info *as, item *out)
{
    if (is_code(text)) return read_code(text, as, out);
    *out = (item){.kind = ITEM_VALUE};
    if (cli_real(text, &out->value)) return CLI_OK;
    out->kind = ITEM_FORMAT;
    return find_format(text, &out->format);
}

/* A code without --as is read in every format it fits. */
static void each_code(uint32_t code, const keel_format_info *as, json *j)
{
    for (int32_t i = 0; keel_format_at(i); i++) {
        const keel_format_info *f = keel_format_at(i);
        if ((as && as != f) || !format_fits(f, code)) continue;
        if (j) {
            json_code(j, f, code);
        } else {
            show_code(f, code);
        }
    }
}

static void show_items(const item *items, int count, const keel_format_info *as)
{
    for (int i = 0; i < count; i++) {
        if (i > 0) putchar('\n');
        switch (items[i].kind) {
        case ITEM_FORMAT:
            show_format(items[i].format);
            break;
        case ITEM_CODE:
            each_code(items[i].code, as, NULL);
            break;
        case ITEM_VALUE:
            show_value(items[i].value, as);
            break;
        }
    }
}

static void json_items(json *j, const item *items, int count, const keel_format_info *as)
{
    static const char *const keys[] = {"formats", "codes", "values"};
    for (item_kind kind = ITEM_FORMAT; kind <= ITEM_VALUE; kind++) {
        bool any = false;
        for (int i = 0; i < count; i++) any |= items[i].kind == kind;
        if (!any) continue;
        json_array(j, keys[kind]);
        for (int i = 0; i < count; i++) {
            if (items[i].kind != kind) continue;
            if (kind == ITEM_FORMAT) json_format(j, items[i].format);
            if (kind == ITEM_CODE) each_code(items[i].code, as, j);
            if (kind == ITEM_VALUE) json_value(j, items[i].value, as);
        }
        json_end(j);
    }
}

static void json_all(json *j)
{
    json_array(j, "formats");
    for (int32_t i = 0; keel_format_at(i); i++) json_format(j, keel_format_at(i));
    json_end(j);
}

static int show(const item *items, int count, const keel_format_info *as, bool as_json)
{
    if (as_json) {
        json j;
        json_begin(&j, stdout);
        json_object(&j, NULL);
        if (count > 0) {
            json_items(&j, items, count, as);
        } else {
            json_all(&j);
        }
        json_end(&j);
    } else if (count > 0) {
        show_items(items, count, as);
    } else {
        show_table();
    }
    return CLI_OK;
}

int cmd_formats(int argc, char **argv)
{
    enum { ITEMS_MAX = 64 };
    const char *as_name = NULL;
    bool as_json = false;
    const cli_option rows[] = {
        {.name = "as",
         .kind = CLI_TEXT,
         .dest = &as_name,
         .value = "FORMAT",
         .help = "only this format, by any of its names"},
        CLI_JSON(&as_json),
        {.name = NULL},
    };
    const cli_usage usage = {
        .operands = "[FORMAT | CODE | VALUE ...]",
        .about = "Without operands: all formats.  FORMAT is any name in use for one, CODE is\n"
                 "written 0x.., VALUE is a number, inf or nan.",
        .examples = "keel formats\n"
                    "keel formats float8_e4m3fn\n"
                    "keel formats 0x7e --as e4m3\n"
                    "keel formats 448.1 -1e-8\n",
        .options = rows,
    };
    cli_args args;
    if (!cli_parse(&usage, argc, argv, &args)) return args.exit_code;
    if (args.count > ITEMS_MAX) {
        return cli_fail(CLI_USAGE, "%d operands (want at most %d)", args.count, ITEMS_MAX);
    }

    const keel_format_info *as = NULL;
    int code = as_name ? find_format(as_name, &as) : CLI_OK;
    item items[ITEMS_MAX + 1];
    int count = 0;
    for (; code == CLI_OK && count < args.count; count++) {
        code = read_item(args.operands[count], as, &items[count]);
    }
    if (code != CLI_OK) return code;
    if (count == 0 && as) items[count++] = (item){.kind = ITEM_FORMAT, .format = as};
    return show(items, count, as, as_json);
}
