/** Controls of charts, which change the settings of their view. */
import { AXES } from './axes.js';
import { h, setAttribute, setHidden, smallButton } from '../dom/dom.js';
import type { Axis, ISettings, Settings } from '../model/viewsettings.js';
import type { ITrans } from '../model/trans.js';

/** A zoom is in units of the axis: it is reset when the axis changes. */
const UNZOOMED = { zoom: null, metrics_zoom: null };

export function axisSelect(trans: ITrans, settings: Settings): HTMLSelectElement {
  const names: Record<Axis, string> = {
    step: trans.__('by batch'),
    epoch: trans.__('by epoch'),
    time: trans.__('by time')
  };
  const select = h(
    'select.det-select',
    { 'aria-label': trans.__('X axis'), title: trans.__('Time counts from the first report.') },
    ...AXES.map(axis => h('option', { value: axis }, names[axis]))
  );
  select.addEventListener('change', () =>
    settings.change({ axis: select.value as Axis, ...UNZOOMED })
  );
  return select;
}

/** Offer the epochs axis only if the length of an epoch is known. */
export function allowEpochs(select: HTMLSelectElement, isKnown: boolean): void {
  setAttribute(select.options.item(AXES.indexOf('epoch')) as Element, 'disabled', !isKnown);
}

export function toggle(settings: Settings, label: string, name: keyof ISettings): HTMLElement {
  const button = smallButton(label, () => {
    const isOn = button.getAttribute('aria-pressed') !== 'true';
    settings.change({ [name]: isOn, ...(name === 'log_x' && UNZOOMED) });
  });
  return button;
}

export function press(button: HTMLElement, on: boolean, isHidden: boolean): void {
  setAttribute(button, 'aria-pressed', String(on));
  setHidden(button, isHidden);
}
