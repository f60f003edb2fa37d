/** The page of a model of the registry, in the main area. */
import type { IModelState } from '../../model/state.js';
import type { ModelView } from './modelview.js';
import { modelIcon } from './pageicons.js';
import { Panel, type Drawing, type IPanelOptions } from './pagepanel.js';

export class ModelPanel extends Panel {
  constructor(
    options: IPanelOptions,
    readonly modelId: number
  ) {
    const { trans } = options.shared;
    super(options, trans.__('Loading the model…'));
    this.addClass('jp-DetModelPage');
    this.title.icon = modelIcon;
    this.title.label = trans.__('Model');
  }

  protected override _onLink(): void {
    this._draw();
  }

  protected override _open(drawing: Drawing): void {
    this._own(
      this._options.shared.socket.follow(
        'model',
        { id: this.modelId },
        state => this._onState(drawing, state),
        sentence => this._say(sentence)
      )
    );
  }

  private _onState(drawing: Drawing, state: IModelState): void {
    if (this._view === undefined) {
      const { commands, shared } = this._options;
      const nameOf = (): string => this._state?.name ?? '';
      const actions = drawing.modelActions(shared, commands, nameOf);
      this._view = this._own(new drawing.ModelView(shared.trans, actions));
      this._host.append(this._view.node);
    }
    this._state = state;
    this.title.label = state.name;
    this.title.caption = this._options.shared.trans.__('Model %1', state.name);
    this._say('');
    this._draw();
  }

  private _draw(): void {
    if (this._state !== undefined) {
      const { state, mayWrite } = this._options.shared.link;
      this._view?.update(this._state, state === 'up' && mayWrite);
    }
  }

  private _view: ModelView | undefined;
  private _state: IModelState | undefined;
}
