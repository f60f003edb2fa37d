/** A dialog to choose one or several experiments, with a filter. */
import { Dialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';
import type { IExperimentRow } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { WindowedList, type IRowView } from './list.js';
import { findsAll } from './listing.js';
import { ChangingIcon, rowLabel, setCut } from './rowparts.js';

const HEIGHT = 28; // pixels of a row; the same in the style sheet

export interface IPickOptions {
  title: string;
  okLabel: string;
  rows: readonly IExperimentRow[];
  trans: ITrans;
  /** If given, several can be chosen; these are selected at first. */
  chosen?: readonly number[];
}

/** The ids of the chosen experiments; none if the dialog was dismissed. */
export async function pickExperiments(options: IPickOptions): Promise<number[]> {
  const { title, okLabel, trans } = options;
  const body = new Picker(options);
  const dialog = new Dialog({
    title,
    body,
    focusNodeSelector: 'input[type=search]',
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: okLabel })
    ]
  });
  body.accept = () => dialog.resolve(1);
  const { button, value } = await dialog.launch();
  return button.accept ? (value ?? []) : [];
}

class Picker extends Widget implements Dialog.IBodyWidget<number[]> {
  constructor(private readonly _options: IPickOptions) {
    super();
    const { trans, chosen, title } = _options;
    this.addClass('jp-DetPicker');
    const isMultiple = chosen !== undefined;
    this._list = new WindowedList<IExperimentRow>({
      label: title,
      keyOf: ({ id }) => id,
      heightOf: () => HEIGHT,
      nameOf: ({ name }) => name,
      create: () => new PickerRow(),
      onOpen: ({ id }) => this._onOpen(id),
      ...(isMultiple && { onSelect: () => this._onSelect() })
    });
    chosen?.forEach(id => this._list.selection.keys.add(id));
    const label = trans.__('Filter by name, number, label, state, …');
    setAttribute(this._search, 'placeholder', label);
    setAttribute(this._search, 'aria-label', label);
    this.node.append(this._search, this._list.node, this._found);
    this._search.addEventListener('input', () => this._filter());
    this._search.addEventListener('keydown', event => this._onKey(event));
    this._filter();
  }

  /** Close the dialog with the choice. */
  accept: () => void = () => undefined;

  override dispose(): void {
    this._list.dispose();
    super.dispose();
  }

  /** The selected ones, else the active one, or the first. */
  getValue(): number[] {
    const selected = [...this._list.selection.keys];
    const place = Math.max(0, this._list.activePlace);
    const isAsked = this._options.chosen === undefined || selected.length < 2;
    const meant = isAsked && this._list.count > 0 ? [this._list.keyAt(place)] : [];
    return this._options.chosen === undefined ? meant : [...new Set([...selected, ...meant])];
  }

  protected override onAfterAttach(): void {
    this._list.draw();
  }

  private _onOpen(id: number): void {
    if (this._options.chosen === undefined) {
      this.accept();
    } else {
      this._list.select(selection => selection.toggle(id));
    }
  }

  private _onSelect(): void {
    this._say();
  }

  private _filter(): void {
    const accepts = findsAll(this._search.value);
    const rows = this._options.rows.filter(accepts).sort((a, b) => b.id - a.id);
    this._list.setItems(rows);
    this._list.activate(0);
    this._say();
  }

  private _say(): void {
    const { rows, trans, chosen } = this._options;
    const [found, all] = [this._list.count.toLocaleString(), rows.length.toLocaleString()];
    const counted = found === all ? trans._n('%1 experiment', '%1 experiments', rows.length) : '';
    const some = found === '0' ? trans.__('No match.') : trans.__('%1 of %2', found, all);
    const selected = this._list.selection.keys.size;
    const picked = chosen === undefined ? '' : trans.__('%1 selected', selected);
    setText(this._found, [counted || some, picked].filter(Boolean).join(' · '));
  }

  /** Keys in the filter box also move in the list; Enter chooses. */
  private _onKey(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    const step = steps[event.key];
    if (step !== undefined && this._list.count > 0) {
      event.preventDefault();
      if (this._options.chosen === undefined) {
        const place = this._list.activePlace + step;
        this._list.activate(Math.max(0, Math.min(this._list.count - 1, place)));
      } else {
        this._list.node.focus(); // in which Space selects
      }
    }
  }

  private readonly _search = h('input.jp-mod-styled', { type: 'search', spellcheck: 'false' });
  private readonly _list: WindowedList<IExperimentRow>;
  private readonly _found = h('p.jp-DetPicker-found', { role: 'status' });
}

class PickerRow implements IRowView<IExperimentRow> {
  readonly node = h('div.det-row.det-mod-picked', { role: 'row' });

  constructor() {
    this.node.append(
      h(
        'div.det-row-line',
        { role: 'gridcell' },
        this._shape.node,
        this._id,
        this._name,
        this._labels,
        this._word
      )
    );
  }

  update({ id, name, status, status_word: word, labels, alarm }: IExperimentRow): void {
    this._shape.set(status);
    setAttribute(this.node, 'data-status', status);
    setAttribute(this.node, 'data-alarm', alarm === '' ? null : 'true');
    setAttribute(this.node, 'aria-label', rowLabel([`${id}`, name, word, ...labels]));
    setText(this._id, String(id));
    setCut(this._name, name);
    setCut(this._labels, labels.join(', '));
    setHidden(this._labels, labels.length === 0);
    setText(this._word, word);
  }

  private readonly _shape = new ChangingIcon();
  private readonly _id = h('span.det-picked-id');
  private readonly _name = h('span.det-row-name');
  private readonly _labels = h('span.det-picked-labels');
  private readonly _word = h('span.det-picked-word');
}
