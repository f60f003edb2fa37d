/** Buttons, icons, bars and texts that rows are made of. */
import { drawing, h, plain, setAttribute, setProse, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import { formatClock } from '../../model/format.js';
import type { ITrans } from '../../model/trans.js';

type IconName = Parameters<typeof icon>[0];

/** Icons of the sidebar; 16 by 16 units. */
const LINES = {
  tag: 'M2.5 2.5h5l6 6l-5 5l-6-6zM5.2 5.2v.1',
  archive: 'M2 3h12v3H2zM3 6v7.5h10V6M6.5 9h3',
  compare: 'M2.5 2.5v11h11M4.5 10.5l3-4l2.5 2l3.5-5M4.5 6.5l3 3l6-1',
  remove: 'M2.5 4h11M6 4V2.5h4V4M4 4l.7 9.5h6.6L12 4M6.8 6.5v4.5M9.2 6.5v4.5',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9zM10.4 10.4L14 14'
};

export function lineIcon(name: keyof typeof LINES): SVGSVGElement {
  const look = { fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 };
  const ends = { 'stroke-linecap': 'round', 'stroke-linejoin': 'round' };
  return drawing({ viewBox: '0 0 16 16', class: 'det-icon' }, { d: LINES[name], ...look, ...ends });
}

type OnClick = () => unknown;

/** A button that shows only an icon; `nameButton` gives it its title. */
export function iconButton(shape: SVGSVGElement, onClick: OnClick): HTMLButtonElement {
  const button = h('button.det-side-icon', { type: 'button', tabindex: -1 }, shape);
  onPress(button, onClick);
  return button;
}

/** A button of a row or toolbar; it is busy until its action has ended. */
export function textButton(text: string, onClick: OnClick, tabindex = 0): HTMLButtonElement {
  const button = h('button.det-side-button', { type: 'button', tabindex }, text);
  onPress(button, onClick);
  return button;
}

function onPress(button: HTMLButtonElement, onClick: OnClick): void {
  button.addEventListener('click', event => {
    event.stopPropagation();
    if (!button.hasAttribute('aria-busy') && button.getAttribute('aria-disabled') === null) {
      setAttribute(button, 'aria-busy', 'true');
      void Promise.resolve(onClick()).finally(() => setAttribute(button, 'aria-busy', null));
    }
  });
}

/** Set a button's label; a disabled one has the reason. */
export function nameButton(button: HTMLElement, name: string, why = ''): void {
  setAttribute(button, 'title', why === '' ? name : `${name}: ${why}`);
  setAttribute(button, 'aria-label', name);
}

/** An icon that is redrawn only when it changes. */
export class ChangingIcon {
  readonly node = h('span.det-side-shape');

  set(name: IconName): void {
    if (name !== this._name) {
      this._name = name;
      this.node.replaceChildren(icon(name));
    }
  }

  private _name: IconName | undefined;
}

/** Set a text that may be cut off, with the whole text as tooltip. */
export function setCut(element: HTMLElement, text: string, title = text): void {
  setText(element, text);
  setAttribute(element, 'title', title === '' ? null : title);
}

/** As `setCut`, for a sentence whose code is between backticks. */
export function setCutProse(element: HTMLElement, sentence: string): void {
  setProse(element, sentence);
  setAttribute(element, 'title', plain(sentence) || null);
}

/** A bar that is filled from the left. */
export class Bar {
  readonly node: HTMLElement;

  constructor(role: 'meter' | 'progressbar', label: string) {
    this.node = h(
      'span.det-bar',
      { role, 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 100 },
      this._fill
    );
  }

  /** From 0 to 1; `null` if unknown. */
  set(share: number | null): void {
    const known = share === null ? 0 : Math.max(0, Math.min(1, share));
    setAttribute(this.node, 'aria-valuenow', share === null ? null : Math.floor(known * 100));
    setAttribute(this.node, 'data-unknown', share === null);
    const wanted = `scaleX(${Math.round(known * 1000) / 1000})`;
    if (this._fill.style.transform !== wanted) {
      this._fill.style.transform = wanted;
    }
  }

  private readonly _fill = h('span');
}

/** Formats a time briefly: today the time of day, else the date. */
export function whenText(at: number, now = Date.now()): string {
  const date = new Date(at * 1000);
  const today = new Date(now);
  if (date.toDateString() === today.toDateString()) {
    return formatClock(at).slice(0, 5);
  }
  const isThisYear = date.getFullYear() === today.getFullYear();
  return date.toLocaleDateString([], {
    day: 'numeric',
    month: 'short',
    ...(isThisYear ? {} : { year: 'numeric' })
  });
}

/** The label of a row for screen readers: all its texts as one sentence. */
export function rowLabel(words: readonly string[]): string {
  return words.filter(word => word !== '').join(', ');
}

/** A number of slots with its noun. */
export function slotsText(count: number, trans: ITrans): string {
  return trans._n('%1 slot', '%1 slots', count);
}
