import type { ITab, ITabContext } from '../tabs/tab.js';

export function timingsTab({ asking: { trans } }: ITabContext): ITab {
  return {
    id: 'timings',
    label: trans.__('Timings'),
    open: () => ({ dispose: () => undefined })
  };
}
