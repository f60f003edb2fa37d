/** The tabs beside the overview, in their order. */
import { checkpointsTab } from './checkpoints/tab.js';
import { configTab } from './config/tab.js';
import { metricsTab } from './metrics/tab.js';
import { systemTab } from './system/tab.js';
import type { ITab, ITabContext } from './tabs/tab.js';
import { timingsTab } from './timings/tab.js';

export function otherTabs(context: ITabContext, logs: ITab): ITab[] {
  return [
    metricsTab(context),
    timingsTab(context),
    systemTab(context),
    logs,
    configTab(context),
    checkpointsTab(context)
  ];
}
