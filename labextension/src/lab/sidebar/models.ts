/** The section of models: a row for each model of the registry, which opens its page. */
import { h, rebuilder } from '../../dom/dom.js';
import type { IModelLine } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';

export class Models {
  readonly node = h('ul.det-models');

  constructor(
    trans: ITrans,
    private readonly _open: (modelId: number) => void
  ) {
    this.node.setAttribute('aria-label', trans.__('Models'));
  }

  /** Draw those that are not archived; returns their number. */
  update(models: readonly IModelLine[]): number {
    const shown = models.filter(model => !model.is_archived);
    this._draw(shown);
    return shown.length;
  }

  private _row(model: IModelLine): HTMLElement {
    const { id, name, description, latest, aliases } = model;
    const button = h(
      'button.det-model-row',
      { type: 'button', title: description === '' ? name : `${name}: ${description}` },
      h('b', {}, name),
      h('span', {}, latest)
    );
    button.addEventListener('click', () => this._open(id));
    const chips = aliases.map(alias => h('span.det-model-alias', {}, alias));
    return h(
      'li',
      {},
      button,
      chips.length === 0 ? null : h('div.det-model-aliases', {}, ...chips)
    );
  }

  private readonly _draw = rebuilder(this.node, (models: IModelLine[]) =>
    models.map(model => this._row(model))
  );
}
