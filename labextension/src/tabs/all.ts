/** The tabs beside the overview, in their order. */
import { systemTab } from '../system/tab.js';
import { timingsTab } from '../timings/tab.js';
import type { ITab, ITabContext } from './tab.js';

export function otherTabs(context: ITabContext): ITab[] {
  return [timingsTab(context), systemTab(context)];
}
