/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
#include "internal.h"
