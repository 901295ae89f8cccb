/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#ifndef KEEL_VERSION_H
#define KEEL_VERSION_H

#include "keel/export.h"

KEEL_BEGIN_DECLS

#define KEEL_VERSION_MAJOR 0
#define KEEL_VERSION_MINOR 1
#define KEEL_VERSION_PATCH 0
#define KEEL_VERSION_NUM \
    (KEEL_VERSION_MAJOR * 10000u + KEEL_VERSION_MINOR * 100u + KEEL_VERSION_PATCH)

/* keel_version: the version of the library that is loaded, as KEEL_VERSION_NUM counts it; compare
 * it with KEEL_VERSION_NUM of the headers compiled against.
 * Errors  none.
 * Since   0.1 */
KEEL_API unsigned keel_version(void);

KEEL_END_DECLS
#endif
