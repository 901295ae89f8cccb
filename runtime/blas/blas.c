/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A CBLAS behind keel_set_sgemm(). */
#include "keel/blas.h"

#include <cblas.h>
#include <limits.h>

#include "keel/matmul.h"

/* Libraries differ in the width of their integers; every one takes an int. */
static keel_status blas_sgemm(void *context, int32_t transpose_a, int32_t transpose_b, int64_t m,
                              int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                              int64_t ldb, float *c, int64_t ldc)
{
    const int64_t sizes[] = {m, n, k, lda, ldb, ldc};
    (void)context;
    for (int i = 0; i < 6; i++)
        if (sizes[i] > INT_MAX) return KEEL_ERR_UNSUPPORTED;
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1.0f, a, (int)lda,
                b, (int)ldb, 0.0f, c, (int)ldc);
    return KEEL_OK;
}

void keel_blas_use(void)
{
    keel_set_sgemm(blas_sgemm, NULL);
}
