/** The buttons for selected experiments, in place of the filters. */
import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';
import { icon } from '../../dom/icons.js';
import type { IExperimentRow } from '../../model/state.js';
import { ENDED } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { iconButton, lineIcon, nameButton } from './rowparts.js';

export interface ISelectedOperations {
  compare: () => unknown;
  editLabels: () => unknown;
  /** Archive them, or unarchive them if all are archived. */
  archive: () => unknown;
  remove: () => unknown;
  clear: () => unknown;
}

export class SelectedBar {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    operations: ISelectedOperations
  ) {
    const button = (shape: SVGSVGElement, onClick: () => unknown): HTMLButtonElement => {
      const made = iconButton(shape, onClick);
      made.tabIndex = 0;
      return made;
    };
    this._compare = button(lineIcon('compare'), operations.compare);
    this._label = button(lineIcon('tag'), operations.editLabels);
    this._archive = button(lineIcon('archive'), operations.archive);
    this._remove = button(lineIcon('remove'), operations.remove);
    const clear = button(icon('close'), operations.clear);
    nameButton(clear, _trans.__('Clear the selection'));
    const buttons = [this._compare, this._label, this._archive, this._remove, clear];
    this.node = h(
      'div.det-selected',
      { role: 'toolbar', 'aria-label': _trans.__('Selected experiments'), hidden: true },
      this._count,
      h('span.det-selected-buttons', {}, ...buttons)
    );
  }

  /** Update the buttons; returns whether any experiment is selected. */
  update(lines: readonly IExperimentRow[], mayWrite: boolean): boolean {
    const { _trans: trans } = this;
    setHidden(this.node, lines.length === 0);
    setText(this._count, trans.__('%1 selected', lines.length.toLocaleString()));
    offer(
      this._compare,
      trans.__('Compare'),
      lines.length < 2 ? trans.__('Select at least two') : ''
    );
    const why = mayWrite ? '' : trans.__('You may only look.');
    const isOver = lines.some(({ status }) => ENDED.includes(status));
    const areArchived = lines.every(line => line.is_archived);
    offer(this._label, trans.__('Edit labels…'), why);
    offer(this._archive, areArchived ? trans.__('Unarchive') : trans.__('Archive'), why);
    offer(this._remove, trans.__('Delete…'), why || (isOver ? '' : trans.__('None has ended')));
    return lines.length > 0;
  }

  private readonly _count = h('span', { role: 'status' });
  private readonly _compare: HTMLButtonElement;
  private readonly _label: HTMLButtonElement;
  private readonly _archive: HTMLButtonElement;
  private readonly _remove: HTMLButtonElement;
}

function offer(button: HTMLButtonElement, name: string, why: string): void {
  nameButton(button, name, why);
  setAttribute(button, 'aria-disabled', why === '' ? null : 'true');
}
