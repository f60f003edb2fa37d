/** A row of a finished experiment. */
import { h, rebuilder, setAttribute } from '../../dom/dom.js';
import { formatDuration, formatNumber } from '../../model/format.js';
import type { IExperimentRow } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import { EXPERIMENT_ATTRIBUTE } from '../tokens.js';
import type { IRowView } from './list.js';
import {
  ChangingIcon,
  iconButton,
  lineIcon,
  nameButton,
  rowLabel,
  setCut,
  whenText
} from './rowparts.js';

export const ENDED_HEIGHT = 46;
/** Labels that are shown; the tooltip has all. */
const MOST_CHIPS = 3;

export interface IEndedOperations {
  isSelected(line: IExperimentRow): boolean;
  toggle(line: IExperimentRow): void;
  filterBy(label: string): void;
  editLabels(line: IExperimentRow): Promise<void>;
  archive(line: IExperimentRow): Promise<void>;
}

export class EndedRow implements IRowView<IExperimentRow> {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _operations: IEndedOperations,
    private readonly _mayWrite: () => boolean
  ) {
    this._box.addEventListener('click', () => this._line && _operations.toggle(this._line));
    const label = iconButton(
      lineIcon('tag'),
      () => this._line && _operations.editLabels(this._line)
    );
    this._archive = iconButton(
      lineIcon('archive'),
      () => this._line && _operations.archive(this._line)
    );
    nameButton(label, _trans.__('Change labels'));
    this._buttons = h('span.det-row-buttons', { role: 'gridcell' }, label, this._archive);
    this.node = h(
      'div.jp-DetExperimentRow.det-row.det-mod-ended',
      { role: 'row' },
      h('span.det-row-pick', { role: 'gridcell' }, this._shape.node, this._box),
      h(
        'div.det-row-main',
        { role: 'gridcell' },
        h('div.det-row-line', {}, this._name, this._metric),
        h('div.det-row-line.det-row-quiet', {}, this._word, this._chips)
      ),
      this._buttons
    );
  }

  update(line: IExperimentRow): void {
    const isSelected = this._operations.isSelected(line);
    if (this._box.checked !== isSelected) {
      this._box.checked = isSelected;
    }
    this._buttons.hidden = !this._mayWrite();
    if (line === this._line) {
      return;
    }
    this._line = line;
    setAttribute(this.node, 'data-experiment-id', line.id);
    setAttribute(this.node, EXPERIMENT_ATTRIBUTE, line.id);
    setAttribute(this.node, 'data-status', line.status);
    setAttribute(this.node, 'data-archived', line.is_archived);
    this._shape.set(line.status);
    setCut(this._name, line.name, titleOf(line));
    this._drawFacts(line);
    this._drawChips(line.labels);
    const { _trans: trans } = this;
    const archive = line.is_archived ? trans.__('Take out of the archive') : trans.__('Archive');
    nameButton(this._archive, archive);
  }

  private _drawFacts(line: IExperimentRow): void {
    const { _trans: trans } = this;
    const ended = line.ended_at;
    const when = ended === null ? '' : whenText(ended);
    const archived = line.is_archived ? trans.__('archived') : '';
    const facts = [`#${line.id}`, line.status_word, archived, when].filter(Boolean);
    const elapsed = trans.__('%1 elapsed', formatDuration(line.held_s));
    const taken =
      ended === null ? '' : `${elapsed}: ${trans.__('the time in which it held slots')}`;
    // The tooltip has the time, too.
    const [error = ''] = line.failure.split('\n');
    const shown = error === '' ? facts : [`#${line.id}`, line.status_word, error];
    setCut(
      this._word,
      shown.join(' · '),
      [...facts, taken, line.failure].filter(Boolean).join('\n')
    );
    const best = line.best_metric === null ? '' : formatNumber(line.best_metric);
    setCut(this._metric, best, best === '' ? '' : trans.__('Best %1: %2', line.metric, best));
    setAttribute(this._box, 'aria-label', trans.__('Select %1', line.name));
    const metric = best === '' ? '' : `${line.metric} ${best}`;
    const words = [line.name, ...facts, metric, ...line.labels, line.failure];
    setAttribute(this.node, 'aria-label', rowLabel(words));
  }

  private _chip(label: string): HTMLElement {
    const title = this._trans.__('Show only those with the label %1', label);
    const chip = h('button.det-chip', { type: 'button', tabindex: -1, title }, label);
    chip.addEventListener('click', event => {
      event.stopPropagation();
      this._operations.filterBy(label);
    });
    return chip;
  }

  private readonly _shape = new ChangingIcon();
  private readonly _box = h('input', { type: 'checkbox', tabindex: -1 });
  private readonly _name = h('span.det-row-name');
  private readonly _metric = h('span.det-row-metric');
  private readonly _word = h('span.det-row-word');
  private readonly _chips = h('span.det-chips');
  private readonly _archive: HTMLButtonElement;
  private readonly _buttons: HTMLElement;
  private readonly _drawChips = rebuilder(this._chips, (labels: string[]) => {
    const more = labels.length - MOST_CHIPS;
    const rest = more > 0 ? h('span', { title: labels.join(', ') }, `+${more}`) : null;
    return [...labels.slice(0, MOST_CHIPS).map(label => this._chip(label)), rest];
  });
  private _line: IExperimentRow | undefined;
}

function titleOf({ id, name, description, notebook, failure }: IExperimentRow): string {
  return [`${name} (#${id})`, description, notebook, failure].filter(Boolean).join('\n');
}
