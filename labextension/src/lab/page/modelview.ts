/** The view of a model of the registry: its versions, where they come from, and how one is loaded. */
import { copyButton } from '../../dom/copy.js';
import { h, prose, rebuilder, setHidden, setText, smallButton } from '../../dom/dom.js';
import { formatSize } from '../../model/format.js';
import type { IModelState, IVersionLine } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';

export interface IModelActions {
  openExperiment: (experimentId: number) => void;
  /** Ask for an alias, and give it to a version. */
  addAlias: (version: IVersionLine) => void;
  removeAlias: (alias: string) => void;
  /** Delete a version, after a question. */
  remove: (version: IVersionLine) => void;
}

interface IShown {
  state: IModelState;
  mayWrite: boolean;
}

const SHORT: Intl.DateTimeFormatOptions = { dateStyle: 'medium', timeStyle: 'short' };

export class ModelView {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _actions: IModelActions
  ) {
    const copy = copyButton(_trans, _trans.__('Copy the lines'), this._code);
    this._load = h('div.det-load', {}, h('div.det-line', {}, this._words, copy), this._code);
    this._versions.setAttribute('aria-label', _trans.__('Versions'));
    this.node = h('article.det-view.det-model', {}, this._head, this._load, this._versions);
  }

  update(state: IModelState, mayWrite: boolean): void {
    this.node.setAttribute('aria-label', state.name);
    this._drawHead(state);
    const { versions } = state;
    const shown =
      versions.find(({ number }) => number === this._loaded) ??
      versions.find(({ aliases }) => aliases.length > 0) ??
      versions[0];
    setHidden(this._load, shown === undefined);
    if (shown !== undefined) {
      this._showCode(shown);
    }
    this._drawVersions({ state, mayWrite });
  }

  dispose(): void {
    this.node.remove();
  }

  private _showCode({ number, load }: IVersionLine): void {
    setText(this._words, this._trans.__('To load version %1:', number));
    setText(this._code, load);
  }

  private _table({ state, mayWrite }: IShown): HTMLElement {
    const { _trans: trans } = this;
    const { versions, hparams } = state;
    const metrics = new Set(versions.map(({ metric }) => metric));
    const metric = metrics.size === 1 ? (versions[0]?.metric ?? '') : '';
    const head = [
      ...[trans.__('Version'), metric || trans.__('Metric'), ...hparams],
      ...[trans.__('From'), trans.__('Size'), trans.__('Registered'), '']
    ];
    const rows = versions.map(version => this._row(version, metric === '', mayWrite));
    return h(
      'table.det-table',
      {},
      h('thead', {}, h('tr', {}, ...head.map(text => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, ...rows)
    );
  }

  private _row(version: IVersionLine, hasMetric: boolean, mayWrite: boolean): HTMLElement {
    const { _trans: trans } = this;
    const { value, metric, is_best: isBest } = version;
    const measured = value === '' ? '–' : hasMetric ? `${metric} ${value}` : value;
    return h(
      'tr',
      { 'data-kept': String(version.is_kept) },
      this._heading(version, mayWrite),
      h('td.det-number', {}, isBest ? h('b', {}, `${measured} ★ ${trans.__('best')}`) : measured),
      ...version.hparams.map(text => h('td.det-number', {}, text)),
      this._origin(version),
      h('td.det-number', {}, formatSize(version.size_bytes)),
      h('td', {}, new Date(version.created_at * 1000).toLocaleString([], SHORT)),
      h('td', {}, this._buttons(version, mayWrite))
    );
  }

  private _heading(version: IVersionLine, mayWrite: boolean): HTMLElement {
    const { name, comment, notes, labels, metadata } = version;
    const texts = [name, comment, notes, ...metadata].filter(text => text !== '');
    return h(
      'th.det-model-version',
      { scope: 'row' },
      h(
        'span.det-labels',
        {},
        h('b', {}, String(version.number)),
        ...version.aliases.map(alias => this._alias(alias, mayWrite)),
        ...labels.map(label => h('span.det-label', {}, label))
      ),
      ...texts.map(text => h('div.det-quiet', {}, text))
    );
  }

  private _alias(alias: string, mayWrite: boolean): HTMLElement {
    const chip = h('span.det-label.det-alias', {}, alias);
    if (mayWrite) {
      const name = this._trans.__('Remove the alias %1', alias);
      const remove = h('button.det-link', { type: 'button', title: name, 'aria-label': name }, '×');
      remove.addEventListener('click', () => this._actions.removeAlias(alias));
      chip.append(remove);
    }
    return chip;
  }

  private _origin(version: IVersionLine): HTMLElement {
    const { _trans: trans } = this;
    const { experiment_id: id, experiment, trial_id: trial, steps, is_kept: isKept } = version;
    const open = h('button.det-link', { type: 'button' }, experiment);
    open.addEventListener('click', () => this._actions.openExperiment(id));
    const rest = [trans.__('experiment %1', id), trans.__('trial %1', trial), steps];
    const lost = isKept ? null : h('div', {}, trans.__('Its checkpoint was deleted by its trial.'));
    return h('td', {}, open, h('div.det-quiet', {}, rest.join(' · ')), lost);
  }

  private _buttons(version: IVersionLine, mayWrite: boolean): HTMLElement {
    const { _trans: trans } = this;
    const named = trans.__('Copy the lines that load version %1', version.number);
    const copy = copyButton(trans, named, this._code, () => {
      this._loaded = version.number;
      this._showCode(version);
      return version.load;
    });
    const alias = smallButton(trans.__('Alias…'), () => this._actions.addAlias(version));
    const remove = smallButton(trans.__('Delete…'), () => this._actions.remove(version));
    [alias, remove].forEach(button => setHidden(button, !mayWrite));
    return h('div.det-buttons', {}, copy, alias, remove);
  }

  private readonly _head = h('header');
  private readonly _words = h('span');
  private readonly _code = h('pre.det-code-lines', { tabindex: 0 });
  private readonly _load: HTMLElement;
  private readonly _versions = h('div.det-table-box', { tabindex: 0, role: 'region' });
  private _loaded: number | undefined;

  private readonly _drawHead = rebuilder(
    this._head,
    ({ name, description, notes, labels, metadata, is_archived: isArchived }: IModelState) => {
      const chips = [...labels, ...(isArchived ? [this._trans.__('archived')] : [])];
      return [
        h(
          'div.det-title',
          {},
          h('span.det-name', {}, name),
          h('span.det-labels', {}, ...chips.map(text => h('span.det-label', {}, text)))
        ),
        ...[description, notes]
          .filter(text => text !== '')
          .map(text => h('p.det-description', {}, text)),
        metadata.length === 0 ? null : h('p.det-quiet', {}, metadata.join(' · '))
      ];
    }
  );
  private readonly _drawVersions = rebuilder(this._versions, (shown: IShown) => {
    const { no_versions: none } = shown.state;
    return none === '' ? [this._table(shown)] : [h('p.det-quiet', {}, ...prose(none))];
  });
}
