import type { ITab, ITabContext } from '../tabs/tab.js';

export function systemTab({ asking: { trans } }: ITabContext): ITab {
  return {
    id: 'system',
    label: trans.__('System'),
    open: () => ({ dispose: () => undefined })
  };
}
