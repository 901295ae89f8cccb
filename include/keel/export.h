/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#ifndef KEEL_EXPORT_H
#define KEEL_EXPORT_H

/* KEEL_API marks what a shared library shows; everything else is hidden. */
#if defined(__GNUC__)
#    define KEEL_API __attribute__((visibility("default")))
#else
#    define KEEL_API
#endif

#ifdef __cplusplus
#    define KEEL_BEGIN_DECLS extern "C" {
#    define KEEL_END_DECLS   }
#else
#    define KEEL_BEGIN_DECLS
#    define KEEL_END_DECLS
#endif

#endif
