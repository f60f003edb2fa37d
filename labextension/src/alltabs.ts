/** The tabs of the second bundle, which is fetched when one of them is opened. */
import { checkpointsTab } from './checkpoints/tab.js';
import { configTab } from './config/tab.js';
import { metricsTab } from './metrics/tab.js';
import { systemTab } from './system/tab.js';
import type { MakeTabs } from './tabs/lazy.js';
import { timingsTab } from './timings/tab.js';

export const makeTabs: MakeTabs = context =>
  [metricsTab, timingsTab, systemTab, configTab, checkpointsTab].map(make => make(context));
