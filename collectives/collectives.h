/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* What the runtime needs of this folder beyond the public interface. */
#ifndef KEELI_COLLECTIVES_H
#define KEELI_COLLECTIVES_H

#include "keel/ext.h"

/* The communicator of a single rank, so that nobody has to ask whether there is one.  Static. */
keel_comm *keeli_comm_self(void);

/* CLOCK_MONOTONIC, the clock of deadlines. */
int64_t keeli_now_ns(void);

/* The point on CLOCK_MONOTONIC that lies timeout_us ahead, in ns; 0 for 0, which means never. */
int64_t keeli_deadline_ns(int64_t timeout_us);

#endif
