/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* C++, because the headers give f16 and bf16 to nothing else. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cstring>

#include "cuda_host.h"

namespace
{
__nv_saturation_t cuda_mode(bool saturate)
{
    return saturate ? __NV_SATFINITE : __NV_NOSAT;
}

float cuda_half(__half_raw h)
{
    return __half2float(__half(h));
}

uint32_t cuda_encode_e4m3(float x, bool saturate)
{
    return __nv_cvt_float_to_fp8(x, cuda_mode(saturate), __NV_E4M3);
}

uint32_t cuda_encode_e5m2(float x, bool saturate)
{
    return __nv_cvt_float_to_fp8(x, cuda_mode(saturate), __NV_E5M2);
}

uint32_t cuda_encode_e3m2(float x, bool)
{
    return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest);
}

uint32_t cuda_encode_e2m3(float x, bool)
{
    return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest);
}

uint32_t cuda_encode_e2m1(float x, bool)
{
    return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
}

uint32_t cuda_encode_f16(float x, bool)
{
    const __half h = __float2half_rn(x);
    uint16_t code;
    std::memcpy(&code, &h, sizeof code);
    return code;
}

uint32_t cuda_encode_bf16(float x, bool)
{
    const __nv_bfloat16 h = __float2bfloat16_rn(x);
    uint16_t code;
    std::memcpy(&code, &h, sizeof code);
    return code;
}

float cuda_decode_e4m3(uint32_t code)
{
    return cuda_half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E4M3));
}

float cuda_decode_e5m2(uint32_t code)
{
    return cuda_half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E5M2));
}

float cuda_decode_e3m2(uint32_t code)
{
    return cuda_half(__nv_cvt_fp6_to_halfraw((__nv_fp6_storage_t)code, __NV_E3M2));
}

float cuda_decode_e2m3(uint32_t code)
{
    return cuda_half(__nv_cvt_fp6_to_halfraw((__nv_fp6_storage_t)code, __NV_E2M3));
}

float cuda_decode_e2m1(uint32_t code)
{
    return cuda_half(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)code, __NV_E2M1));
}

float cuda_decode_f16(uint32_t code)
{
    __half_raw h;
    h.x = (unsigned short)code;
    return cuda_half(h);
}

float cuda_decode_bf16(uint32_t code)
{
    __nv_bfloat16_raw h;
    h.x = (unsigned short)code;
    return __bfloat162float(__nv_bfloat16(h));
}

} // namespace

extern "C" const cuda_host cuda_hosts[CUDA_HOSTS] = {
    {KEEL_FORMAT_E4M3, cuda_encode_e4m3, cuda_decode_e4m3, true},
    {KEEL_FORMAT_E5M2, cuda_encode_e5m2, cuda_decode_e5m2, true},
    {KEEL_FORMAT_F16, cuda_encode_f16, cuda_decode_f16, false},
    {KEEL_FORMAT_BF16, cuda_encode_bf16, cuda_decode_bf16, false},
    {KEEL_FORMAT_E3M2, cuda_encode_e3m2, cuda_decode_e3m2, false},
    {KEEL_FORMAT_E2M3, cuda_encode_e2m3, cuda_decode_e2m3, false},
    {KEEL_FORMAT_E2M1, cuda_encode_e2m1, cuda_decode_e2m1, false},
};

extern "C" uint32_t cuda_encode_f64(keel_format format, double x)
{
    const __nv_fp8_interpretation_t kind = format == KEEL_FORMAT_E4M3 ? __NV_E4M3 : __NV_E5M2;
    return __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind);
}

extern "C" uint32_t cuda_e8m0_up(float x)
{
    return __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf);
}

extern "C" uint32_t cuda_e8m0_up_f64(double x)
{
    return __nv_cvt_double_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf);
}
