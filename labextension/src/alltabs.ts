/** The tabs in the second bundle, which is fetched when one of them is first opened. */
import { checkpointsTab } from './tabs/checkpointstab.js';
import { configTab } from './tabs/configtab.js';
import { metricsTab } from './metrics/metricstab.js';
import { systemTab } from './tabs/systemtab.js';
import type { MakeTabs } from './tabs/lazy.js';
import { timingsTab } from './timings/timingstab.js';

export const makeTabs: MakeTabs = context =>
  [metricsTab, timingsTab, systemTab, configTab, checkpointsTab].map(make => make(context));
