/** The tabs beside the overview, in their order. */
import { metricsTab } from './metrics/tab.js';
import { systemTab } from './system/tab.js';
import { timingsTab } from './timings/tab.js';
import type { ITab, ITabContext } from './tabs/tab.js';

export function otherTabs(context: ITabContext): ITab[] {
  return [metricsTab(context), timingsTab(context), systemTab(context)];
}
