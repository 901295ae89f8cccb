/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The checksum of a state blob, so that tests can seal what they have bent. */
#ifndef TESTS_SEAL_H
#define TESTS_SEAL_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32 as in zlib, bit by bit. */
static inline uint32_t seal_crc32(const unsigned char *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < 8; b++) {
            const uint32_t low = (crc ^ (uint32_t)(bytes[i] >> b)) & 1;
            crc = crc >> 1 ^ (low ? 0xedb88320u : 0);
        }
    return ~crc;
}

/* Write the checksum of all but the last four bytes there. */
static inline void seal(unsigned char *blob, size_t size)
{
    const uint32_t crc = seal_crc32(blob, size - 4);
    for (size_t i = 0; i < 4; i++) blob[size - 4 + i] = (unsigned char)(crc >> 8 * i);
}

#endif
