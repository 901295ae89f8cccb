/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The plain f32 product.  Every element of d adds its terms with k ascending, one after another, as
 * the innermost loop runs over independent elements: blocking changes where a sum waits, never its
 * order.  A block of b lies in a panel of its own, so that transposed operands cost a copy. */
#include <string.h>

#include "product.h"

enum {
    PANEL_N = 128, /* with PANEL_K: 32 KB */
    PANEL_K = 64,
    UNROLL = 4
};

/* A matrix by strides: element (i, j) at data[i * row + j * column]. */
typedef struct view {
    const float *data;
    int row, column;
} view;

static view view_of(const product_operand *x, int rows, int columns, int index)
{
    const float *data = x->data + (int64_t)index * rows * columns;
    return x->transposed ? (view){data, 1, rows} : (view){data, columns, 1};
}

static float at(view v, int i, int j)
{
    return v.data[(int64_t)i * v.row + (int64_t)j * v.column];
}

static void fill_panel(float panel[PANEL_K][PANEL_N], view b, int k0, int depth, int n0, int width)
{
    if (b.column == 1) {
        for (int k = 0; k < depth; k++)
            memcpy(panel[k], &b.data[(int64_t)(k0 + k) * b.row + n0],
                   (size_t)width * sizeof(float));
        return;
    }
    for (int n = 0; n < width; n++)
        for (int k = 0; k < depth; k++) panel[k][n] = at(b, k0 + k, n0 + n);
}

static void add_terms(float *restrict d, const float *restrict factor,
                      const float (*restrict panel)[PANEL_N], int terms, int width)
{
    int k = 0;
    for (; k + UNROLL <= terms; k += UNROLL) {
        const float f0 = factor[k], f1 = factor[k + 1], f2 = factor[k + 2], f3 = factor[k + 3];
        for (int n = 0; n < width; n++) {
            float sum = d[n];
            sum += f0 * panel[k][n];
            sum += f1 * panel[k + 1][n];
            sum += f2 * panel[k + 2][n];
            sum += f3 * panel[k + 3][n];
            d[n] = sum;
        }
    }
    for (; k < terms; k++)
        for (int n = 0; n < width; n++) d[n] += factor[k] * panel[k][n];
}

static void add_panel(float *d, int stride, view a, int k0, int depth, int m_count, int width,
                      const float (*panel)[PANEL_N])
{
    float factor[PANEL_K];
    for (int m = 0; m < m_count; m++) {
        for (int k = 0; k < depth; k++) factor[k] = at(a, m, k0 + k);
        add_terms(d + (int64_t)m * stride, factor, panel, depth, width);
    }
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void add_product(const product *p, int index)
{
    float panel[PANEL_K][PANEL_N];
    const view a = view_of(&p->a, p->m, p->k, index), b = view_of(&p->b, p->k, p->n, index);
    float *d = p->d + (int64_t)index * p->m * p->n;
    for (int n0 = 0; n0 < p->n; n0 += PANEL_N) {
        const int width = least(PANEL_N, p->n - n0);
        for (int k0 = 0; k0 < p->k; k0 += PANEL_K) {
            const int depth = least(PANEL_K, p->k - k0);
            fill_panel(panel, b, k0, depth, n0, width);
            add_panel(d + n0, p->n, a, k0, depth, p->m, width, (const float(*)[PANEL_N])panel);
        }
    }
}

keel_status product_f32(void *context, const product *p)
{
    (void)context;
    if (!p->accumulate)
        memset(p->d, 0, (size_t)p->batch * (size_t)p->m * (size_t)p->n * sizeof *p->d);
    for (int i = 0; i < p->batch; i++) add_product(p, i);
    return KEEL_OK;
}
