/** The choice of metrics: a filter, and a limited number of matches. */
import { focusedIn, h, setHidden, setText } from '../dom/dom.js';
import type { ITrans } from '../model/trans.js';

export const MAX_CHOSEN = 24;
const MAX_LISTED = 200;

export class Chooser {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _onChoose: (names: string[]) => void
  ) {
    const label = _trans.__('Filter: text or /regex/');
    this._filter = h('input.det-field', {
      type: 'search',
      placeholder: label,
      'aria-label': label
    });
    this._filter.addEventListener('input', () => this._list());
    this._box.addEventListener('change', event => this._onChange(event));
    this.node = h('div.det-chooser', {}, this._filter, this._box, this._count);
    this._box.setAttribute('aria-label', _trans.__('Metrics'));
  }

  /** Set the metrics to choose from and the chosen ones. */
  update(names: readonly string[], chosen: readonly string[]): void {
    const key = JSON.stringify([names.length, names.at(-1), chosen]);
    setHidden(this.node, names.length < 2);
    if (key !== this._key) {
      this._key = key;
      this._names = names;
      this._chosen = new Set(chosen);
      this._list();
    }
  }

  private _list(): void {
    const fitting = matching(this._names, this._filter.value);
    const first = fitting.filter(name => this._chosen.has(name));
    const rest = fitting.filter(name => !this._chosen.has(name));
    const listed = [...first, ...rest].slice(0, MAX_LISTED);
    const focused = focusedIn(this._box)?.getAttribute('value');
    this._box.replaceChildren(...listed.map(name => this._row(name)));
    if (focused !== undefined && focused !== null) {
      [...this._box.querySelectorAll('input')].find(one => one.value === focused)?.focus();
    }
    const more = fitting.length - listed.length;
    const shown = this._trans.__('%1 of %2 drawn', this._chosen.size, this._names.length);
    const left = more > 0 ? this._trans.__('%1 more are not listed: filter them', more) : '';
    setText(this._count, [shown, left].filter(text => text !== '').join(', '));
  }

  private _row(name: string): HTMLElement {
    const isChosen = this._chosen.has(name);
    const isFull = !isChosen && this._chosen.size >= MAX_CHOSEN;
    const box = h('input', { type: 'checkbox', value: name, disabled: isFull });
    box.checked = isChosen;
    return h('label.det-choice', { title: name }, box, h('span', {}, name));
  }

  private _onChange(event: Event): void {
    const { value, checked } = event.target as HTMLInputElement;
    const kept = this._names.filter(name => this._chosen.has(name) && name !== value);
    this._onChoose(checked ? [...kept, value] : kept);
  }

  private readonly _filter: HTMLInputElement;
  private readonly _box = h('div.det-choices', { role: 'group' });
  private readonly _count = h('p.det-quiet', { role: 'status' });
  private _names: readonly string[] = [];
  private _chosen = new Set<string>();
  private _key = '';
}

/** Names that contain a text, ignoring case; between slashes it is a regular expression. */
export function matching(names: readonly string[], text: string): string[] {
  const inner = /^\/(.+)\/$/.exec(text)?.[1];
  const plain = text.toLowerCase();
  let test = (name: string): boolean => name.toLowerCase().includes(plain);
  if (inner !== undefined) {
    try {
      const pattern = new RegExp(inner, 'i');
      test = name => pattern.test(name);
    } catch {
      // An unfinished regular expression.
    }
  }
  return names.filter(test);
}
