/** The filters of finished experiments, replaced by buttons while some are selected. */
import { h, rebuilder, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import { ENDED, type Status } from '../../model/state.js';
import { type ITrans, statusWord } from '../../model/trans.js';
import type { IQuery, SortBy } from './listing.js';
import { iconButton, lineIcon, nameButton } from './rowparts.js';

export interface IFilterOperations {
  onChange: (query: IQuery) => void;
  /** All existing labels, called when the choice is opened. */
  labels: () => string[];
}

export class Filters {
  readonly node: HTMLElement;

  /** @param selected - Shown in place of the filters, so that no row moves or is covered. */
  constructor(
    private readonly _trans: ITrans,
    private _query: IQuery,
    selected: HTMLElement,
    private readonly _operations: IFilterOperations
  ) {
    this._search = this._searchBox();
    this._sort = this._sortBox();
    this._status = this._statusBox();
    this._label = this._labelBox();
    const search = h('div.det-filter-search', {}, lineIcon('search'), this._search);
    this._archived = iconButton(lineIcon('archive'), () =>
      this._change({ showArchived: !this._query.showArchived })
    );
    this._archived.tabIndex = 0;
    nameButton(this._archived, _trans.__('Show archived ones, too'));
    const choices = [this._status, this._label, this._sort, this._archived];
    this._choices = h('div.det-filter-line', {}, ...choices);
    this.node = h(
      'div.det-filters',
      { role: 'search', 'aria-label': _trans.__('Finished experiments') },
      search,
      this._choices,
      selected,
      this._chips,
      this._found
    );
    this.show(_query);
  }

  get query(): IQuery {
    return this._query;
  }

  /** Show another query, without calling `onChange`. */
  show(query: IQuery): void {
    this._query = query;
    if (this._search.value !== query.text) {
      this._search.value = query.text;
    }
    this._sort.value = query.sortBy;
    this._status.value = query.status;
    setAttribute(this._archived, 'aria-pressed', query.showArchived ? 'true' : 'false');
    setHidden(this._chips, query.labels.length === 0);
    this._drawChips([...query.labels]);
  }

  addLabel(label: string): void {
    if (!this._query.labels.includes(label)) {
      this._change({ labels: [...this._query.labels, label] });
    }
  }

  clear(): void {
    this._change({ text: '', status: '', labels: [] });
  }

  count(found: string, isSelecting: boolean): void {
    setText(this._found, found);
    setHidden(this._choices, isSelecting);
  }

  private _change(change: Partial<IQuery>): void {
    this.show({ ...this._query, ...change });
    this._operations.onChange(this._query);
  }

  private _searchBox(): HTMLInputElement {
    const text = this._trans.__('Filter by name, label, notebook, …');
    const box = h('input.det-filter-text', {
      type: 'search',
      placeholder: this._trans.__('Filter'),
      title: text,
      'aria-label': text,
      spellcheck: 'false'
    });
    box.addEventListener('input', () => this._change({ text: box.value }));
    return box;
  }

  private _statusBox(): HTMLSelectElement {
    const { _trans: trans } = this;
    const box = select(trans.__('Status'), [
      ['', trans.__('Status')],
      ...ENDED.map((status): [string, string] => [status, statusWord(status, trans)])
    ]);
    box.addEventListener('change', () => this._change({ status: box.value as Status | '' }));
    return box;
  }

  private _sortBox(): HTMLSelectElement {
    const { _trans: trans } = this;
    const box = select(trans.__('Order'), [
      ['newest', trans.__('Newest')],
      ['oldest', trans.__('Oldest')],
      ['name', trans.__('Name')],
      ['metric', trans.__('Best')]
    ]);
    box.addEventListener('change', () => this._change({ sortBy: box.value as SortBy }));
    return box;
  }

  private _labelBox(): HTMLSelectElement {
    const { _trans: trans } = this;
    const box = select(trans.__('Label'), [['', trans.__('Labels')]]);
    const fill = (): void => {
      const first = box.options[0] as HTMLOptionElement;
      box.replaceChildren(
        first,
        ...this._operations.labels().map(one => h('option', { value: one }, one))
      );
    };
    box.addEventListener('pointerdown', fill);
    box.addEventListener('focus', fill);
    box.addEventListener('change', () => {
      const label = box.value;
      box.value = '';
      this.addLabel(label);
    });
    return box;
  }

  private _chip(label: string): HTMLElement {
    const name = this._trans.__('Also without the label %1', label);
    const chip = h(
      'button.det-chip',
      { type: 'button', title: name, 'aria-label': name },
      label,
      icon('close')
    );
    chip.addEventListener('click', () =>
      this._change({ labels: this._query.labels.filter(one => one !== label) })
    );
    return chip;
  }

  private readonly _search: HTMLInputElement;
  private readonly _sort: HTMLSelectElement;
  private readonly _status: HTMLSelectElement;
  private readonly _label: HTMLSelectElement;
  private readonly _archived: HTMLButtonElement;
  private readonly _found = h('span.det-side-unseen', { role: 'status' });
  private readonly _chips = h('div.det-filter-line');
  private readonly _choices: HTMLElement;
  private readonly _drawChips = rebuilder(this._chips, (labels: string[]) =>
    labels.map(label => this._chip(label))
  );
}

function select(label: string, choices: [string, string][]): HTMLSelectElement {
  const options = choices.map(([value, text]) => h('option', { value }, text));
  return h('select.det-select', { 'aria-label': label, title: label }, ...options);
}
