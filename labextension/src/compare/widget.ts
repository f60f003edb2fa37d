/** A comparison as an anywidget: its state in, the reader's settings out. */
import type { AnyModel } from '@anywidget/types';

import { MetricChart } from '../charts/chart.js';
import type { IComparisonState } from '../model/state.js';
import { Settings, type ISettings } from '../model/settings.js';
import { ComparisonView } from './view.js';

export interface IComparisonTraits extends Record<string, unknown> {
  comparison: IComparisonState;
  settings: Partial<ISettings>;
}

export function renderComparison(model: AnyModel<IComparisonTraits>, el: HTMLElement): () => void {
  const settings = new Settings(model.get('settings'), value => {
    model.set('settings', value);
    model.save_changes();
  });
  const view = new ComparisonView({
    makeChart: options => new MetricChart(options),
    settings
  });
  el.append(view.node);
  const onSettings = (): void => settings.load(model.get('settings'));
  const onState = (): void => view.update(model.get('comparison'));
  model.on('change:settings', onSettings);
  model.on('change:comparison', onState);
  onState();
  return () => {
    model.off('change:settings', onSettings);
    model.off('change:comparison', onState);
    view.dispose();
  };
}
