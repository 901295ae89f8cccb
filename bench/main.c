/* SPDX-License-Identifier: Apache-2.0
 * Copyright the Keel authors */
int main(void)
{
    return 0;
}
