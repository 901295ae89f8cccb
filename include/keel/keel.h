/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* The whole stable interface, in reading order. */
#ifndef KEEL_H
#define KEEL_H

#include "keel/version.h"
#include "keel/status.h"
#include "keel/formats.h"
#include "keel/tensor.h"
#include "keel/device.h"
#include "keel/quantize.h"
#include "keel/matmul.h"
#include "keel/mx.h"
#include "keel/comm.h"
#include "keel/clip.h"
#include "keel/loss_scale.h"
#include "keel/scaling.h"
#include "keel/recipe.h"
#include "keel/config.h"
#include "keel/report.h"
#include "keel/step.h"

#endif
