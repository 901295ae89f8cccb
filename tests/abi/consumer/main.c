/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
/* A user's program: clip [3, 4] to norm 1, by itself and in a step that ranks agree on. */
#include <stdio.h>

#include <keel/keel.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", keel_last_error());
    return 1;
}

int main(void)
{
    float grad[2] = {3.0f, 4.0f};
    keel_tensor tensor = {grad, 2, KEEL_FORMAT_F32, 0, NULL, NULL};
    double norm = 0;
    if (keel_clip_global_norm(NULL, &tensor, 1, 1.0f, NULL, 0, &norm)) return fail();

    keel_comm *comm;
    keel_config cfg = KEEL_CONFIG_INIT;
    keel_param param = KEEL_PARAM_INIT;
    keel_step *step;
    keel_report report;
    if (keel_comm_threads(1, &comm)) return fail();
    cfg.comm = comm;
    cfg.max_norm = 1.0f;
    param.grad = tensor;
    if (keel_step_create(&cfg, &param, 1, NULL, 0, &step)) return fail();
    if (keel_step_run(step, NULL)) return fail();
    if (keel_step_report(step, 0, &report)) return fail();
    keel_step_destroy(step);
    keel_comm_destroy(comm);

    printf("keel %u: norm %g, then [%g, %g], applied %d\n", keel_version(), norm, (double)grad[0],
           (double)grad[1], (int)report.applied);
    return keel_version() == KEEL_VERSION_NUM && norm == 5.0 && report.applied ? 0 : 1;
}
