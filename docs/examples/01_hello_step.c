/* SPDX-License-Identifier: Apache-2.0 */
#include <keel/keel.h>
#include <stdio.h>

int main(void)
{
    float w[2] = {3, 4}, m[2] = {0}, v[2] = {0}; /* f32 master and AdamW moments */
    uint16_t grad[2];                            /* f16, scaled by the loss scale */

    const keel_group group = KEEL_GROUP_ADAMW(0.5);
    keel_config cfg = KEEL_CONFIG_INIT;
    cfg.groups = &group;
    cfg.group_count = 1;
    cfg.max_norm = 1.0f;

    keel_param p = KEEL_PARAM_INIT;
    p.name = "w";
    p.grad = (keel_tensor){.data = grad, .numel = 2, .format = KEEL_FORMAT_F16};
    p.master = w, p.moment1 = m, p.moment2 = v;

    keel_step *step = NULL;
    if (keel_step_create(&cfg, &p, 1, NULL, 0, &step))
        return fprintf(stderr, "%s\n", keel_last_error()), 1;

    for (int i = 0; i < 6; i++) {
        float scale;
        keel_step_loss_scale(step, &scale);
        for (int j = 0; j < 2; j++) { /* backward of |w|^2 / 2: the gradient is w */
            uint32_t code;
            keel_format_encode(KEEL_FORMAT_F16, w[j] * scale, KEEL_OVERFLOW_DEFAULT, &code);
            grad[j] = (uint16_t)code;
        }
        if (keel_step_run(step, NULL)) return fprintf(stderr, "%s\n", keel_last_error()), 1;
        keel_report r;
        keel_step_report(step, 0, &r);
        printf("step %d  scale %5.0f  norm %6.4f  coef %6.4f  %s\n", i + 1, r.loss_scale, r.norm,
               r.clip_coef, r.applied ? "applied" : keel_cause_string(r.cause));
    }
    keel_step_destroy(step);
}
